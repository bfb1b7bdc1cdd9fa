-- setfenced: writes a value, unless a higher fencing number has been seen.
-- KEYS    1 hash with the fields "fence" and "value"
-- ARGV    1 fencing number, in digits  2 value  3 life from now, ms; 0: without end
-- Returns '' if it is written, else the number that was seen
-- Redis   6.2. Run again it does the same again, unless a higher number came between.
local ok, seen = fence_admits(KEYS[1], ARGV[1])
if not ok then return seen end
redis.call('HSET', KEYS[1], 'value', ARGV[2])
if tonumber(ARGV[3]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return ''
