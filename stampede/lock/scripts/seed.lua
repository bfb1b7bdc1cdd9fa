-- seed: makes a server's marker, if there is none and the claim stands. What the server forgot after it
-- was claimed it has forgotten together with the claim.
-- KEYS    1 marker  2 claim
-- ARGV    1 claim  2 name of the epoch  3 number that all accepted ones must be above
-- Returns 1 made, 0 not
-- Redis   6.2
if marked(KEYS[1]) then return 0 end
local run = run_id()
if not run or redis.call('GET', KEYS[2]) ~= run .. ':' .. ARGV[1] then return 0 end
redis.call('DEL', KEYS[2], KEYS[1])
redis.call('HSET', KEYS[1], 'e', ARGV[2], 'r', run, 't', ARGV[3])
return 1
