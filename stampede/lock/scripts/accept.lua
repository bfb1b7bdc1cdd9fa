-- accept: notes a fencing number for a lock, if it is above the one that is known and the lock is held.
-- KEYS    1 lock  2 number of this lock  3 marker
-- ARGV    1 stamp of the lease  2 epoch  3 number  4 how long to keep the number, ms
-- Returns '' if it is noted; the known number, in digits, if that is not lower; '-' if the lock is not held,
--         or the server has forgotten
-- Redis   6.2
if redis.call('GET', KEYS[1]) ~= 'L' .. ARGV[1] then return '-' end
local epoch, top = marked(KEYS[3])
if epoch ~= ARGV[2] then return '-' end
local known, n = own(KEYS[2], epoch, top), tonumber(ARGV[3])
if n <= known then return string.format('%.0f', known) end
redis.call('SET', KEYS[2], epoch .. ':' .. ARGV[3], 'PX', ARGV[4])
if n > top then redis.call('HSET', KEYS[3], 't', ARGV[3]) end
return ''
