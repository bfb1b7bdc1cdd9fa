-- expiretag: gives a tag a number that is higher than any that was read before. It stands behind tags.lua.
-- KEYS    1 record
-- ARGV    1 the tag  2 of how many tags the last expiry is remembered  3 channel of the tags
-- Returns 1, or 0 if there is no record: then all entries with tags are expired
-- Redis   6.2. Run twice, it expires the tag twice.
local answer, had = 0, record(redis.call('ZMSCORE', KEYS[1], 'e', 'n', 'f'))
if had.epoch ~= 0 then
  local now = later(had.number, redis.call('TIME'))
  -- ZREM first: when memory is full, Redis lets a script write after it has written.
  redis.call('ZREM', KEYS[1], '')
  redis.call('ZADD', KEYS[1], digits(-now), 'n', digits(now), ':' .. ARGV[1])
  -- The scores of what is no tag are negative, so the tags come after them, and the oldest one first.
  local others = 2
  if had.floor > 0 then others = 3 end
  local over = redis.call('ZCARD', KEYS[1]) - others - tonumber(ARGV[2])
  if over > 0 then
    local last = others + over - 1
    local floor = redis.call('ZRANGE', KEYS[1], last, last, 'WITHSCORES')[2]
    redis.call('ZREMRANGEBYRANK', KEYS[1], others, last)
    redis.call('ZADD', KEYS[1], digits(-tonumber(floor)), 'f')
  end
  answer = 1
end
redis.call('PUBLISH', ARGV[3], ARGV[1])
return answer
