-- expire: makes an entry stale from now on, under a new stamp, and ends any lease or marker. What is
-- known about the old stamp ("not before that lease ends", in a follower) ends with it.
-- KEYS    1 entry  2 lease
-- ARGV    1 new stamp  2 check of the key  3 channel of the key  4 drop channel  5 the key
-- Returns 1 stale, 2 deleted for it had no stale window, 0 there was none
-- Redis   6.2
local answer = 0
-- DEL first: when memory is full, Redis lets a script write after it has written.
redis.call('DEL', KEYS[2])
local v = redis.pcall('GETRANGE', KEYS[1], 0, 83)
if usable(v, ARGV[2]) then
  local keep = window(v)
  if keep <= 0 then
    redis.call('UNLINK', KEYS[1])
    answer = 2
  else
    local left = redis.call('PTTL', KEYS[1])
    if left < 0 or left > keep then redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep)) end
    local flags = string.byte(v, 4)
    if not expired(v) then flags = flags + 2 end
    redis.call('SETRANGE', KEYS[1], 3, string.char(flags) .. ARGV[1])
    answer = 1
  end
end
redis.call('PUBLISH', ARGV[3], 'c')
redis.call('PUBLISH', ARGV[4], ARGV[5])
return answer
