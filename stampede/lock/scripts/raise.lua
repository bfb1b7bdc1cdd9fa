-- raise: begins a new epoch, in which the numbers of all locks count as being at least a given one.
-- KEYS    1 marker
-- ARGV    1 the epoch that was seen  2 the new one  3 number that all accepted ones must be above
-- Returns 1 raised, 0 not: the server has forgotten, or is in another epoch
-- Redis   6.2. Run again it does nothing more; a copy that comes late finds another epoch.
local epoch, top = marked(KEYS[1])
if epoch == ARGV[2] then return 1 end
if epoch ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'e', ARGV[2], 't', string.format('%.0f', math.max(top, tonumber(ARGV[3]))))
return 1
