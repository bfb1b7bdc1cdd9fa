-- Shared by the scripts that look at a back-off marker; it stands before them.

-- failed returns what a back-off marker remembers: how many loads have failed in a row, in two digits, and
-- for how long it stands beyond the back-off, in ms. One that remembers nothing gives '' and 0.
local function failed(l)
  local failures, memory = string.match(string.sub(l, 34), '^(%d%d)(%d+)$')
  return failures or '', tonumber(memory) or 0
end
