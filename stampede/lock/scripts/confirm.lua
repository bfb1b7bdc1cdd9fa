-- confirm: says whether a server that has accepted a fencing number remembers it.
-- KEYS    1 number of the lock  2 marker
-- ARGV    1 epoch in which it was accepted  2 number
-- Returns 1 if so, else 0
-- Redis   6.2
local epoch, top = marked(KEYS[2])
if epoch ~= ARGV[1] then return 0 end
return own(KEYS[1], epoch, top) >= tonumber(ARGV[2]) and 1 or 0
