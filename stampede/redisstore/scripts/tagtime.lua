-- tagtime: makes a space's record of tags where there is none. It stands behind tags.lua.
-- KEYS    1 record
-- ARGV    1 epoch for a new record
-- Returns {epoch, number}, each as a string
-- Redis   6.2
local had = record(redis.call('ZMSCORE', KEYS[1], 'e', 'n', 'f'))
if had.epoch == 0 then
  had.epoch, had.number = tonumber(ARGV[1]), later(had.number, redis.call('TIME'))
  redis.call('ZADD', KEYS[1], digits(-had.epoch), 'e', digits(-had.number), 'n')
end
return {digits(had.epoch), digits(had.number)}
