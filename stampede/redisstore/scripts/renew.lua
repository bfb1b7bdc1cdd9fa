-- renew: lets a lease end later, if it is still held. It never takes one.
-- KEYS    1 lease
-- ARGV    1 stamp of the lease  2 length from now, ms
-- Returns 1 held, 2 nobody holds a lease, 3 somebody else does
-- Redis   6.2
local l = redis.call('GET', KEYS[1])
if l == 'L' .. ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
-- A lease with the caller's token and another nonce comes from a late copy of its own elect: that is
-- nobody else.
if l and string.sub(l, 1, 1) == 'L' and string.sub(l, 2, 17) ~= string.sub(ARGV[1], 1, 16) then return 3 end
return 2
