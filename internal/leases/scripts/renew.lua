-- renew: lets a lease end later, if it is still held. It never takes one.
-- KEYS    1 lease
-- ARGV    1 stamp of the lease  2 length from now, ms  3 none, or 'longer': do not shorten it, so that a
--         late copy of a renewal cannot take back what a longer one gave
-- Returns 1 held, 2 nobody holds a lease, 3 another lease is held; also one with the same token, made by
--         a late copy of the command that asked for it
-- Redis   6.2
local l = redis.call('GET', KEYS[1])
if l and string.sub(l, 1, 33) == 'L' .. ARGV[1] then
  if not ARGV[3] or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 1
end
if l and string.sub(l, 1, 1) == 'L' then return 3 end
return 2
