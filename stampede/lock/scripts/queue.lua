-- Shared by the scripts that know of a queue: KEYS, ARGV and what is returned are theirs. In the queue of a lock, a
-- sorted set, stand the processes in which somebody waits for it, by the time at which they came. It only serves
-- to wake one of them instead of all; whoever is not in it, or is not woken, asks by and by.
local queue_kept = 60000

local function enqueue(queue, process, now)
  redis.pcall('ZADD', queue, 'NX', now[1] * 1000000 + now[2], process)
  redis.pcall('PEXPIRE', queue, queue_kept)
end

