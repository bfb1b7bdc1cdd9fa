-- acquire: grants a lock, and with it a fencing number.
-- KEYS    1 lock  2 the last fencing number  3 queue of those who wait
-- ARGV    1 token (16 bytes)  2 length of the lease, ms
--         3 how long to keep the number after the clock has passed it, ms
--         4 process that waits if it is not granted, or ''
-- Returns the stamp (32 bytes) and then the number in digits, if it is granted; else for how many ms
--         another holds it, below 0 if without end
-- Redis   6.2. Run again with the same token while the lease lasts, it returns the same.
--
-- The number is the server's clock in microseconds, or one more than the last one, whichever is higher. So
-- it grows whatever the clock does as long as the last one is kept, and after that has been lost with all
-- else, in a restart, as long as the clock has not gone back. The last one is dropped when the clock is past
-- it by ARGV[3]: then the clock alone is enough.
local now = redis.call('TIME')
local stamp, left, again = take(KEYS[1], ARGV[1], ARGV[2], now)
if not stamp then
  if ARGV[4] ~= '' then enqueue(KEYS[3], ARGV[4], now) end
  return left
end
if ARGV[4] ~= '' then redis.pcall('ZREM', KEYS[3], ARGV[4]) end
if again then
  local last = redis.pcall('GET', KEYS[2])
  if type(last) == 'string' then return stamp .. last end
end
local us = now[1] * 1000000 + now[2]
local number = string.format('%.0f', us)
local last = redis.pcall('SET', KEYS[2], number, 'PX', ARGV[3], 'GET')
if type(last) == 'string' then -- most often lower
  local n = tonumber(last) or 0
  if n >= us then
    number = string.format('%.0f', n + 1)
    redis.call('SET', KEYS[2], number, 'PX', string.format('%.0f', math.floor((n - us) / 1000) + ARGV[3]))
  end
elseif last then -- what is no string has nothing to do there
  redis.call('SET', KEYS[2], number, 'PX', ARGV[3])
end
return stamp .. number
