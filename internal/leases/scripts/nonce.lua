-- nonce makes each grant of a lease another one, even for the same token: a copy of the command that asked
-- for it, which arrives late, cannot bring back the rights of a lease that has ended. It is the server's
-- clock in microseconds, in 16 digits.
local function nonce(now) return string.format('%010d%06d', tonumber(now[1]), tonumber(now[2])) end

