-- succeeded forgets the failures of a breaker that isn't open, and with 'closed', as after a probe, those of any. With
-- 'reset', it also closes what members have opened or isolated for themselves alone.
-- KEYS: breakers, the breaker's lease. ARGV: breaker, 'call', 'closed' or 'reset'.
local b = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[2] == 'reset' then
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  b = {failures = 0, openUntil = 0, reset = now, changed = now}
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(b))
  redis.call('DEL', KEYS[2])
elseif b and (ARGV[2] == 'closed' or cjson.decode(b).openUntil == 0) then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('DEL', KEYS[2])
end
