-- take, shared by scripts: KEYS, ARGV and what is returned are theirs. It grants the lease at key to token, for ms, unless
-- another holds it. It returns the stamp, or false and for how many ms the other holds it; and whether it was granted
-- before: run again with the same token while the lease lasts, it returns the same stamp and lets the lease last
-- for ms from now, if that is longer. Once the lease has ended, it grants another one, with another nonce. A lease
-- without an end (PERSIST) is none; what is no lease at all is left alone.
local function take(key, token, ms, now)
  local stamp = token .. nonce(now)
  if redis.call('SET', key, 'L' .. stamp, 'NX', 'PX', ms) then return stamp, 0, false end
  local l, left = redis.pcall('GET', key), redis.call('PTTL', key)
  if type(l) ~= 'string' or #l ~= 33 or string.sub(l, 1, 1) ~= 'L' then return false, left end
  if left < 0 then
    redis.call('SET', key, 'L' .. stamp, 'PX', ms)
    return stamp, 0, false
  end
  if string.sub(l, 2, 17) ~= token then return false, left end
  if left < tonumber(ms) then redis.call('PEXPIRE', key, ms) end
  return string.sub(l, 2), 0, true
end

