-- Shared by the scripts that look into a space's record of tags; it stands before them. The record is a sorted
-- set: ':' and a tag with the number of its last expiry, and 'e', 'n' and 'f' with the epoch, the number and the
-- floor, all negative.

local function digits(n) return string.format('%.0f', n) end

-- record makes one of the scores of 'e', 'n' and 'f'.
local function record(had)
  return {epoch = -tonumber(had[1] or 0), number = -tonumber(had[2] or 0), floor = -tonumber(had[3] or 0)}
end

-- later is a number above n. It is the time, as TIME answers it, in µs where that is higher, so that a number that a failover
-- has lost is not given to another expiry; below 2^52, so that there are as many above it that a score can hold.
local function later(n, time)
  return math.max(n + 1, math.min(time[1] * 1000000 + time[2], 2 ^ 52))
end
