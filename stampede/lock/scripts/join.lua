-- join: grants a lock on one of several servers (Redlock).
-- KEYS    1 lock
-- ARGV    1 token (16 bytes)  2 length of the lease, ms
-- Returns the stamp (32 bytes) if it is granted; else for how many ms another holds it, below 0 if without
--         end
-- Redis   6.2. Run again with the same token while the lease lasts, it returns the same.
local stamp, left = take(KEYS[1], ARGV[1], ARGV[2], redis.call('TIME'))
return stamp or left
