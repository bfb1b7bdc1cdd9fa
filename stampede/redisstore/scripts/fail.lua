-- fail: ends a load that failed, if its lease is still held, and leaves a back-off marker in its place.
-- KEYS    1 lease
-- ARGV    1 stamp of the lease  2 life of the marker, ms  3 channel of the key
-- Returns 1 ended, 0 it was not held
-- Redis   6.2
if redis.call('GET', KEYS[1]) ~= 'L' .. ARGV[1] then return 0 end
-- DEL first: when memory is full, Redis lets a script write after it has written.
local del = redis.pcall('DEL', KEYS[1])
redis.pcall('SET', KEYS[1], 'F' .. ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], 'u' .. ARGV[1])
if type(del) == 'table' and del.err then return del end
return 1
