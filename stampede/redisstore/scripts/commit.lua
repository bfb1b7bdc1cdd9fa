-- commit: ends a load with a value, if its lease is still held, or if what it began beside still stands: a
-- marker, or another load's lease.
-- KEYS    1 entry  2 lease
-- ARGV    1 stamp of that lease or marker  2 the new entry  3 channel of the key
--         4 how long to back off when the entry cannot be written, ms
--         5 kinds of what may stand there: 'L' the load's own lease, 'FPL' a marker or another lease
--         6 size up to which the entry is sent along to who waits
-- Returns {1} written; {2} an earlier copy of this command has written it; {0} the lease is not held;
--         {3, error} the entry could not be written; the lease is given back all the same
-- Redis   6.2
local l = redis.call('GET', KEYS[2])
if not l or string.sub(l, 2, 33) ~= ARGV[1] or not string.find(ARGV[5], string.sub(l, 1, 1), 1, true) then
  local had = redis.pcall('GETRANGE', KEYS[1], 0, 35)
  if type(had) == 'string' and #had == 36 and stamp(had) == stamp(ARGV[2]) then return {2} end
  return {0}
end

local set = redis.pcall('SET', KEYS[1], ARGV[2], 'PX', life(ARGV[2]))
if type(set) == 'table' and set.err then
  -- Full, read-only or unable to persist. Who waits is told that nothing was stored. Redis refuses
  -- writes for lack of memory only until a script has written: the marker takes the lease's place.
  redis.pcall('DEL', KEYS[2])
  redis.pcall('SET', KEYS[2], 'F' .. ARGV[1], 'PX', ARGV[4])
  redis.call('PUBLISH', ARGV[3], 'u' .. ARGV[1])
  return {3, set.err}
end
redis.call('DEL', KEYS[2])
redis.call('PUBLISH', ARGV[3], #ARGV[2] <= tonumber(ARGV[6]) and 'v' .. ARGV[2] or 'c')
return {1}
