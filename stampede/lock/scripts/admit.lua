-- fence_admits, shared by scripts: KEYS, ARGV and what is returned are theirs. It notes the highest fencing number
-- that the hash at key was given, in its field "fence". It returns false for a lower one, and the one that it
-- knows. Numbers are digits without leading zeros.
local function fence_admits(key, fence)
  local seen = redis.call('HGET', key, 'fence')
  if seen and (#seen > #fence or #seen == #fence and seen > fence) then return false, seen end
  redis.call('HSET', key, 'fence', fence)
  return true
end

