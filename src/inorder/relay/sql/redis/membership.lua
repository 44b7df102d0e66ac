-- name: beat
-- Keeps a member known for a while and tells how many are alive and how many of them come before it; KEYS[1] the
-- members by the time at which they are forgotten, ARGV[1] who asks, ARGV[2] for how many milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local rank = 0
local members = redis.call('ZRANGE', KEYS[1], 0, -1)
for _, member in ipairs(members) do
    if member < ARGV[1] then rank = rank + 1 end
end
return {#members, rank}
