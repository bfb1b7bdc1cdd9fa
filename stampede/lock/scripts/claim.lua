-- claim: looks for a server's marker, and announces the wish to make one if there is none.
-- KEYS    1 marker  2 claim
-- ARGV    1 random name of the claim, '' to look only  2 life of the claim, ms
-- Returns {epoch, highest number}, or {''} without a marker
-- Redis   6.2
local epoch, top = marked(KEYS[1])
if epoch then return {epoch, string.format('%.0f', top)} end
if ARGV[1] ~= '' then redis.call('SET', KEYS[2], ARGV[1] .. ':' .. run_id(), 'PX', ARGV[2]) end
return {''}
