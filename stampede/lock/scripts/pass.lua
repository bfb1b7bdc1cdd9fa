-- pass: ends a lease, if it is still held, and tells who is next. It goes after the script that ends leases, which it has
-- as the function release.
-- KEYS    1 lock  2 queue of those who wait; the channel is called the same
-- ARGV    1 stamp of the lease, or its token alone  2 process in which somebody waits, or ''
-- Returns 1 ended, 0 it was not held; or, if it is ended, the process that is next
-- Redis   6.2
--
-- The message is 'c', the process that is next, and the one after it, who is there in case the first one does not
-- take the lock.
if ARGV[2] ~= '' then enqueue(KEYS[2], ARGV[2], redis.call('TIME')) end
local queue = redis.pcall('ZRANGE', KEYS[2], 0, 1)
local ended = release({KEYS[1]}, {ARGV[1], 0, '0', KEYS[2], (queue[1] or '') .. (queue[2] or '')})
if ended ~= 1 or not queue[1] then return ended end
redis.pcall('ZREM', KEYS[2], queue[1])
return queue[1]
