-- Shared by the scripts that look into an entry; it stands before them. Offsets as in docs/protocol.md,
-- plus one, because Lua counts from one.

-- num reads an unsigned big-endian number of 6 bytes: exact, for it stays below 2^53.
local function num(s, i)
  local a, b, c, d, e, f = string.byte(s, i, i + 5)
  return ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
end

local function stamp(v) return string.sub(v, 5, 36) end

-- usable says whether v is an entry of the key with this check. All else counts as no entry.
local function usable(v, check)
  return type(v) == 'string' and #v >= 84 and string.sub(v, 1, 3) == 'hg\1'
    and string.byte(v, 4) < 8 and string.sub(v, 61, 68) == check
    and stamp(v) ~= string.rep('\0', 32)
end

-- The flags are 1 not found, 2 expired, 4 tags.
local function expired(v) return string.byte(v, 4) % 4 >= 2 end

-- window is for how long the entry is kept beyond its TTL.
local function window(v) return math.max(num(v, 49), num(v, 55)) end

-- life is the hard TTL as an argument for PX.
local function life(v) return string.format('%.0f', math.max(num(v, 43) + window(v), 1)) end
