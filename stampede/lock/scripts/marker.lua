-- Shared by the scripts that give out fencing numbers on several servers: KEYS, ARGV and what is returned are
-- theirs.
--
-- The marker of a server is a hash: e, the epoch, random, new each time that the server was given its
-- numbers; r, the server's run id at that time; t, the highest number that the server has accepted for any
-- lock, or was given. A server whose run id is another has been restarted, and what it knows may be old: it
-- has no marker.
--
-- run_id returns the run id, or false when the server does not tell: then nothing would tell of a restart, and
-- there are no numbers. Stand-ins for Redis in tests, which keep nothing over a restart, may have none.
local function run_id()
  local info = redis.pcall('INFO', 'server')
  if type(info) == 'string' then return string.match(info, 'run_id:(%x+)') or false end
  return string.find(info.err or '', 'is not supported', 1, true) and '' or false
end

-- marked returns the epoch and the highest number, or false.
local function marked(key)
  local m = redis.call('HMGET', key, 'e', 'r', 't')
  local id = run_id()
  if m[1] and id and m[2] == id then return m[1], tonumber(m[3]) end
  return false
end

-- own returns the last number of one lock. It is kept as epoch:number, and one of another epoch, or none,
-- counts as the highest number of any lock: so it may be forgotten at any time.
local function own(key, epoch, top)
  local c = redis.call('GET', key)
  if c and string.sub(c, 1, #epoch + 1) == epoch .. ':' then return tonumber(string.sub(c, #epoch + 2)) end
  return top
end

