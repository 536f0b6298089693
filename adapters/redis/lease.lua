-- lease returns 1 if a member may probe a breaker: one at a time if the fleet has opened it, and a call only once its
-- time is over. What a member has opened for itself alone is no matter of the fleet's.
-- KEYS: breakers, the breaker's lease. ARGV: breaker, member, milliseconds, 'call' or 'background'.
local b = redis.call('HGET', KEYS[1], ARGV[1])
b = b and cjson.decode(b) or {openUntil = 0}
if b.openUntil == 0 then return 1 end

local t = redis.call('TIME')
if ARGV[4] == 'call' and b.openUntil > t[1] * 1000 + math.floor(t[2] / 1000) then return 0 end
if redis.call('GET', KEYS[2]) == ARGV[2] then return 1 end
return redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3]) and 1 or 0
