-- seed: makes a server's marker, if there is none and the claim stands. What the server forgot after it
-- was claimed it has forgotten together with the claim.
-- KEYS    1 marker  2 claim
-- ARGV    1 name of the claim, which becomes the epoch  2 number that all accepted ones must be above
-- Returns 1 made, 0 not
-- Redis   6.2
if marked(KEYS[1]) then return 0 end
local run = run_id()
if redis.call('GET', KEYS[2]) ~= ARGV[1] .. ':' .. run then return 0 end
redis.call('DEL', KEYS[2], KEYS[1])
redis.call('HSET', KEYS[1], 'e', ARGV[1], 'r', run, 't', ARGV[2])
return 1
