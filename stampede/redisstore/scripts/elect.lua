-- elect: asks for the lease of a key, after another look at its entry.
-- KEYS    1 entry  2 lease
-- ARGV    1 token (16 bytes)  2 length of the lease, ms  3 stamp of the entry that the caller saw, or ''
--         4 check of the key (8 bytes)  5 size of the largest entry that is of use, or -1
-- Returns {role, PTTL of the entry, the entry or null, ...}; of a string that is no entry, or too large, its
--         first 84 bytes at most; with role
--         1 fresh: the entry is fresh and another than the caller saw
--         2 leader, then the lease's stamp
--         3 back-off, 4 pass, 5 follower, then the stamp in the lease's place, its PTTL (3: what is left
--           of the back-off), and for pass '1' if the value may not be shared
-- Redis   6.2. Run again with the same token while the lease lasts, it answers leader with the same
--         stamp; after the lease has ended it grants another one, with another nonce.
local v = redis.pcall('GETRANGE', KEYS[1], 0, 83)
local left = -2
if type(v) == 'string' then left = redis.call('PTTL', KEYS[1]) end
if left == -2 then
  v = false
elseif usable(v, ARGV[4]) then
  local limit = tonumber(ARGV[5])
  local whole = redis.call('GETRANGE', KEYS[1], 0, ARGV[5]) -- one byte more than the limit, or all
  if limit < 0 or #whole <= limit then
    v = whole
    if stamp(v) ~= ARGV[3] and not expired(v) and left > window(v) then return {1, left, v} end
  end
end

local failures = ''
local l = redis.pcall('GET', KEYS[2])
if type(l) == 'string' and #l >= 33 then
  local ends = redis.call('PTTL', KEYS[2])
  -- What would never end (PERSIST) is not a lease.
  if ends >= 0 then
    local kind = string.sub(l, 1, 1)
    if kind == 'L' and string.sub(l, 2, 17) == ARGV[1] then return {2, left, v, string.sub(l, 2, 33)} end
    if kind == 'P' then return {4, left, v, string.sub(l, 2, 33), ends, string.sub(l, 34, 34)} end
    if kind == 'L' then return {5, left, v, string.sub(l, 2, 33), ends} end
    if kind == 'F' then
      local memory
      failures, memory = failed(l)
      if ends > memory then return {3, left, v, string.sub(l, 2, 33), ends - memory} end
      -- The back-off has passed: the next load is due, and the lease remembers how many have failed.
    end
  end
end

local granted = ARGV[1] .. nonce(redis.call('TIME'))
redis.call('SET', KEYS[2], 'L' .. granted .. failures, 'PX', ARGV[2])
return {2, left, v, granted}
