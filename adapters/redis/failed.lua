-- failed adds up the failures of a breaker, and opens it if there are enough, of two members unless there is only one.
-- If it is open and its time is over, a probe has failed. It returns the time and the breaker, unless there is no room.
-- KEYS: breakers, members. ARGV: breaker, member, failures, the number that opens the breaker, how long for, and
-- 'more', 'all' (failures have perhaps been counted before) or 'trip' (by hand).
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local count, enough, how = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[6]
local b = redis.call('HGET', KEYS[1], ARGV[1])
if not b and redis.call('HLEN', KEYS[1]) >= 1000 then return {now} end

b = b and cjson.decode(b) or {failures = 0, openUntil = 0}
if b.openUntil == 0 then
  b.failures = how == 'more' and b.failures + count or math.max(b.failures, count)
  b.member = (b.member or ARGV[2]) == ARGV[2] and ARGV[2] or 'several'
  local alone = redis.call('ZCOUNT', KEYS[2], now - 3000, '+inf') < 2
  if how == 'trip' or b.failures >= enough and (alone or b.member == 'several') then
    b.openUntil = now + ARGV[5]
  end
elseif b.openUntil <= now and how ~= 'all' then
  b.openUntil = now + ARGV[5]
end
b.changed = now
b = cjson.encode(b)
redis.call('HSET', KEYS[1], ARGV[1], b)
return {now, b}
