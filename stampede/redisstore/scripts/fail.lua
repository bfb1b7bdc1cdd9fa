-- fail: ends a load that failed, if its lease is still held, and leaves a back-off marker in its place. The
-- lease says how many loads have failed before it in a row.
-- KEYS    1 lease
-- ARGV    1 stamp of the lease  2 back-off after the first failure, ms; doubled with each further one
--         3 longest back-off, ms; not above the first: it is not doubled  4 channel of the key
-- Returns the back-off, ms; what is left of it if an earlier copy of this command has begun it; 0 if the
--         lease is not held
-- Redis   6.2
local l = redis.call('GET', KEYS[1])
if not l or string.sub(l, 2, 33) ~= ARGV[1] then return 0 end
if string.sub(l, 1, 1) == 'F' then
  local _, memory = failed(l)
  return math.max(redis.call('PTTL', KEYS[1]) - memory, 0)
end
if string.sub(l, 1, 1) ~= 'L' then return 0 end

local backoff, most, marker, memory = tonumber(ARGV[2]), tonumber(ARGV[3]), 'F' .. ARGV[1], 0
if most > backoff then
  local failures = tonumber(string.match(string.sub(l, 34), '^%d%d$') or 0)
  backoff, memory = math.min(backoff * 2 ^ failures, most), most
  marker = marker .. string.format('%02d%.0f', math.min(failures + 1, 99), memory)
end
-- DEL first: when memory is full, Redis lets a script write after it has written.
local del = redis.pcall('DEL', KEYS[1])
redis.pcall('SET', KEYS[1], marker, 'PX', string.format('%.0f', backoff + memory))
redis.call('PUBLISH', ARGV[4], 'u' .. ARGV[1])
if type(del) == 'table' and del.err then return del end
return backoff
