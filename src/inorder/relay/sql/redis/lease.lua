-- name: extend
-- Gives the holder another while; KEYS[1] the lease, ARGV[1] who asks, ARGV[2] for how many milliseconds.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0

-- name: release
-- Frees the lease if it is still held by who asks; KEYS[1] the lease, ARGV[1] who asks.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0
