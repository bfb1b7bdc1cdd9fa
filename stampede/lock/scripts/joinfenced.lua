-- joinfenced: grants a lock on one of several servers, and says which fencing number that server knows.
-- KEYS    1 lock  2 number of this lock  3 marker
-- ARGV    1 token (16 bytes)  2 length of the lease, ms  3 how long to keep the number, ms
-- Returns {stamp, epoch or '' without a marker, number} if it is granted; else for how many ms another
--         holds it, below 0 if without end
-- Redis   6.2. Run again with the same token while the lease lasts, it returns the same stamp.
local stamp, left = take(KEYS[1], ARGV[1], ARGV[2], redis.call('TIME'))
if not stamp then return left end
local epoch, top = marked(KEYS[3])
if not epoch then return {stamp, '', '0'} end
local n = string.format('%.0f', own(KEYS[2], epoch, top))
-- Noted, so that numbers given to other locks meanwhile do not count for this one.
redis.call('SET', KEYS[2], epoch .. ':' .. n, 'PX', ARGV[3])
return {stamp, epoch, n}
