-- claim: looks for a server's marker, and announces the wish to make one if there is none.
-- KEYS    1 marker  2 claim
-- ARGV    1 random name of the claim, '' to look only  2 life of the claim, ms
-- Returns {epoch or '' without a marker, highest number, '0' if none is known, clock in microseconds,
--         the claim or ''}
-- Redis   6.2
--
-- The claim has a nonce, as a lease has: a copy of the command that comes late makes another claim, for nobody.
local now = redis.call('TIME')
local us = string.format('%010d%06d', tonumber(now[1]), tonumber(now[2]))
local epoch, top = marked(KEYS[1])
if epoch then return {epoch, string.format('%.0f', top), us, ''} end
local old, claim = redis.call('HGET', KEYS[1], 't') or '0', ''
local run = run_id()
if ARGV[1] ~= '' and run then
  claim = ARGV[1] .. us
  redis.call('SET', KEYS[2], run .. ':' .. claim, 'PX', ARGV[2])
end
return {'', old, us, claim}
