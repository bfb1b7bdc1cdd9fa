-- release: ends a lease, if it is still held; for the guard, a load whose value is not stored.
-- KEYS    1 lease
-- ARGV    1 stamp of the lease, or its token alone (if no answer told the stamp)
--         2 life of the pass marker, ms; 0: none  3 '1' if the value may not be shared, else '0'
--         4 channel of the key  5 none, or what to add to the message
-- Returns 1 ended, 0 it was not held
-- Redis   6.2
local l = redis.call('GET', KEYS[1])
if not l or string.sub(l, 1, 1 + #ARGV[1]) ~= 'L' .. ARGV[1] then return 0 end
local del = redis.pcall('DEL', KEYS[1])
local message = 'c'
if tonumber(ARGV[2]) > 0 then
  redis.pcall('SET', KEYS[1], 'P' .. string.sub(l, 2, 33) .. ARGV[3], 'PX', ARGV[2])
  message = 'u' .. string.sub(l, 2, 33)
end
redis.call('PUBLISH', ARGV[4], message .. (ARGV[5] or ''))
if type(del) == 'table' and del.err then return del end
return 1
