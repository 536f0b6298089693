-- poll says that a member is alive, and returns what the fleet knows. It forgets what is an hour old.
-- KEYS: breakers, members, isolations. ARGV: the member.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local new = redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - 3000)
redis.call('PEXPIRE', KEYS[1], 86400000)
redis.call('PEXPIRE', KEYS[2], 86400000)

local all, fresh = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local b = cjson.decode(all[i + 1])
  if now > math.max(b.changed, b.openUntil) + 3600000 then
    redis.call('HDEL', KEYS[1], all[i])
  else
    fresh[#fresh + 1] = all[i]
    fresh[#fresh + 1] = all[i + 1]
  end
end
return {now, new, redis.call('ZCARD', KEYS[2]), fresh, redis.call('HGETALL', KEYS[3])}
