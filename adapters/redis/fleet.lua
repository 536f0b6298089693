-- All that members of a fleet agree on, as one script, so that each operation is atomic. All keys share the hash tag
-- of the namespace, and therefore a node of a cluster. All times are the server's, in milliseconds: members say when
-- something was by its clock, as they have heard that, and hear durations, so their own clocks don't matter.
--
-- KEYS: members (sorted set: member -> when it was heard of last), version (hash: since, n, of, forked, before, awake,
-- clock, ahead), index (sorted set: ID of a breaker -> when it expires), configs (hash: ID and configuration -> when a member with it was heard
-- of last), answer (hash of this command alone: its reply, since a client sends it again if that is lost), then the hashes
-- of the breakers that the operation concerns.
--
-- A breaker that is closed and has no failures has no key, but for a while after a reset, and after a probe has closed
-- it. The fields of others:
--   state           "open" or "isolated"; none while it is closed
--   failures        in a row, over all members, while it is closed
--   last            when the last one was, or that of a probe
--   row             the version of the fleet with which the first of them was counted
--   succeeded       when a member with some of them had succeeded last before its own, as far as that is known
--   by:MEMBER       that some of them are this member's
--   at, probe_at    when a call and when a Probe may be the next probe
--   opened          since when Probes that fail may put calls off
--   lease, until    of which member a call is the probe, and until when none of another one may be
--   leased          since when it has the lease
--   vain            how long all leases were that have ended without a result since the last one
--   prober, hangs   whose Probe was called last, unless it has failed, and until when it may hang
--   probes          counts Probes since the breaker has opened, calls that have failed as the probe, and lost leases
--   failed:MEMBER   which of them was the last call of this member, and when its next one may be the probe
--   probed:MEMBER   which of them was the last Probe of this member, zero if it has only asked for one, and until when it
--                   asks for the next
--   cause, reason   of the state
--   reset           when it was reset by hand, for a minute: members that were away have to hear of that
--   recovered       when a probe has closed it last, and until when that is remembered, for a minute: members that were
--                   away may know of the opening before it
--   blind           until when an opening means that Probes can't see what is wrong, after one has closed it
--   isolated        when it was isolated
--   v               the version of the fleet when it has changed last
local members, version, index, configs, answer, breaker = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local op, me, channel, keep, absent, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local seen, newest = ARGV[7], tonumber(ARGV[8]) -- the memory that the member knows, and the newest of its versions
local arg = {unpack(ARGV, 9)} -- of the operation

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The server's clock may be set back, and that of one that takes over may be behind. What it would have to catch up
-- with is added from then on, so that nothing that the fleet remembers is ever in the future, unless it's meant to be.
local clock = redis.call('HMGET', version, 'clock', 'ahead') -- what it was at the last command, and what was added
local ahead = tonumber(clock[2] or 0)
ahead = ahead + math.max(tonumber(clock[1] or 0) - (now + ahead), 0)
now = now + ahead

local prolonged = 3600000 -- how often it is noted, at most, that what doesn't change is still mentioned
local life = keep + prolonged -- of a breaker, so that it is remembered for as long as it should be since it was mentioned
local lately = 60000 -- for how long a reset is remembered, and a recovery
local cooldowns = 10 -- for how many of them Probes that fail may put calls off
local late = 1000 -- by how much a member may do later what it does at a time of its own
local soon = 10 -- after what time to ask for a lease, since a wait of zero is no news
local missed = 600000 -- for how long a member that hasn't left may be out of reach rather than gone

local function int(n) return string.format('%.0f', n) end

-- half returns a half of an interval, in whole milliseconds: no member can read a reply with others.
local function half(interval) return math.ceil(interval / 2) end

-- past returns when something was that a member tells of: now if it doesn't say so, and never later.
local function past(at)
	at = tonumber(at)
	return at > 0 and math.min(at, now) or now
end

-- heard returns how many members were heard of lately.
local function heard() return redis.call('ZCOUNT', members, int(now - absent), '+inf') end

-- live returns how many members there are, at least one: this one.
local function live() return math.max(heard(), 1) end

-- needed returns how many members must have seen failures to open a breaker: all, if there are fewer than the quorum,
-- also those that the server can't hear, who may be where the backend is. For a while after the first is heard of, it
-- isn't known how many there are.
local function needed(quorum)
	local awake = tonumber(redis.call('HGET', version, 'awake') or 0)
	if now - awake < absent then return quorum end
	return math.min(quorum, redis.call('ZCARD', members))
end

-- present returns the fields with a prefix whose members are there, and forgets those of others.
local function present(prefix)
	local all = {}
	for _, field in ipairs(redis.call('HKEYS', breaker)) do
		if string.sub(field, 1, #prefix) == prefix then
			local heard = redis.call('ZSCORE', members, string.sub(field, #prefix + 1))
			if heard and tonumber(heard) >= now - absent then
				table.insert(all, field)
			else
				redis.call('HDEL', breaker, field)
			end
		end
	end
	return all
end

-- Calls and Probes take turns each for themselves.
local turns = {calls = 'failed:', probe = 'probed:'}

-- turn returns which of the probes that were in vain was the last call of a member, or its last Probe, zero if none
-- was; and for a call when the next one may be the probe, for a Probe until when the member asks for the next one.
local function turn(cause, key, member)
	local nth, due = string.match(redis.call('HGET', key, turns[cause] .. member) or '', '^(%d+) (%d+)$')
	return tonumber(nth or 0), tonumber(due or redis.call('HGET', key, 'at') or now)
end

-- owed returns since when calls of all those may be the probe who have had no turn since this member's was in vain; nil
-- if there are none. Its own network may be broken, or its calls may tell nothing, and they may be called rarely: its
-- next ones don't put them off. Probes are owed to those who ask for one: others may not have the breaker, or may have
-- isolated it.
local function owed(cause)
	local mine = turn(cause, breaker, me)
	if mine == 0 then return nil end
	local fields, since = present(turns[cause]), nil
	if cause == 'calls' and #fields < live() then since = tonumber(redis.call('HGET', breaker, 'at')) end
	for _, field in ipairs(fields) do
		local nth, due = turn(cause, breaker, string.sub(field, #turns[cause] + 1))
		if nth < mine and (cause == 'calls' or due > now) then since = math.max(since or 0, due) end
	end
	return since
end

-- lapse forgets a lease that has ended without a result: that was its member's turn.
local function lapse()
	local h = redis.call('HMGET', breaker, 'lease', 'until', 'leased')
	if not h[1] or tonumber(h[2]) > now then return end
	local _, due = turn('calls', breaker, h[1])
	redis.call('HSET', breaker, 'failed:' .. h[1], redis.call('HINCRBY', breaker, 'probes', 1) .. ' ' .. int(due))
	redis.call('HINCRBY', breaker, 'vain', int(h[2] - h[3]))
	redis.call('HDEL', breaker, 'lease', 'leased')
end

-- keptOut returns until when the lease of another member keeps calls of this one from being the probe: of one that is owed
-- a turn, for so long that of several one goes first.
local function keptOut(key, holder, ends, leased)
	if not holder or holder == me then return 0 end
	if turn('calls', key, me) >= turn('calls', key, holder) then return tonumber(ends) end
	return math.min(tonumber(ends), leased + absent)
end

-- moment names a memory that begins now. It is of the time that never goes back: the server's clock, once set back,
-- comes past the same moment again.
local moment = int(now) .. '.' .. time[2] % 1000

-- since returns what tells this memory of the fleet from one that was lost, which the member may have known.
local function since()
	if redis.call('HSETNX', version, 'since', moment) == 1 then redis.call('HSET', version, 'before', seen) end
	redis.call('PEXPIRE', version, life + prolonged) -- longer than any breaker, whose versions would be in the future
	return redis.call('HGET', version, 'since')
end

-- fork begins another memory if this one lacks what the member has seen, as after a failover to a replica that was behind:
-- by its name the others notice it too, whatever is written before they ask. Those that this one comes after, or that
-- have been seen to be lost, are noted as before it; any other must be newer.
local function fork()
	local h = redis.call('HMGET', version, 'since', 'n', 'of', 'before')
	if not h[1] or seen == '' then return end
	local n, before = h[2] or '0', {}
	local knows = h[1] == seen and tonumber(n) >= newest or h[3] == seen
	for name in string.gmatch(h[4] or '', '%S+') do
		before[#before + 1] = name
		knows = knows or name == seen
	end
	if knows then return end

	before[#before + 1] = h[1]
	if h[1] ~= seen then before[#before + 1] = seen end
	redis.call('HSET', version, 'since', moment, 'of', h[1], 'forked', n)
	redis.call('HSET', version, 'before', table.concat(before, ' ', math.max(#before - 15, 1)))
end

-- alive says that the member is, as each of its commands does, and notes when it is the first one that is heard of, ever or after an outage. A server
-- whose memory is full refuses the first command of a script that needs some, but not if another has changed something.
local function alive()
	local first = heard() == 0
	redis.call('ZADD', members, int(now), me)
	redis.call('ZREMRANGEBYSCORE', members, '-inf', '(' .. int(now - missed))
	redis.call('PEXPIRE', members, keep)
	if first then redis.call('HSET', version, 'awake', int(now)) end
	redis.call('HSET', version, 'clock', int(now), 'ahead', int(ahead))
	since()
end

-- get returns a breaker as members know it.
local function get(key, id)
	local h = redis.call('HMGET', key, 'state', 'failures', 'cause', 'reason', 'v', 'lease', 'until', 'isolated', 'reset', 'leased',
		'last', 'opened')
	local _, at = turn('calls', key, me)
	local age, failed, opened = 0, -1, -1
	at = math.max(at, keptOut(key, h[6], h[7], h[10]))
	if h[3] == 'manual' then age = math.max(now - (h[8] or h[9] or now), 0) end
	if h[1] == 'open' and h[11] then failed = now - h[11] end
	if h[1] == 'open' and h[12] then opened = now - h[12] end
	return {
		id = id, state = h[1] or 'closed', failures = tonumber(h[2]) or 0, wait = math.max(at - now, 0), age = age,
		cause = h[3] or 'calls', reason = h[4] or '', v = tonumber(h[5]) or 0, since = since(), by = me,
		failed = failed, opened = opened,
	}
end

-- recovery returns when a probe has closed the breaker last, and until when that is remembered; zero if it isn't.
local function recovery()
	local at, ends = string.match(redis.call('HGET', breaker, 'recovered') or '', '^(%d+) (%d+)$')
	if not at or tonumber(ends) <= now then return 0, 0 end
	return tonumber(at), tonumber(ends)
end

-- changed publishes a breaker that has changed, and returns it. told replaces what a closed one can't hold; it asks if
-- nothing more is known of the backend than that it is asked.
local function changed(id, told)
	local v = redis.call('HINCRBY', version, 'n', 1)
	if redis.call('EXISTS', breaker) == 1 then
		local h = redis.call('HMGET', breaker, 'state', 'failures', 'reset', 'blind')
		local _, ends = recovery()
		local time = life
		if not h[1] and not h[2] then
			time = math.min(math.max((h[3] or 0) + lately - now, (h[4] or 0) - now, ends - now, 1), life)
		end
		redis.call('HSET', breaker, 'v', v)
		redis.call('PEXPIRE', breaker, time)
		redis.call('ZADD', index, int(now + time), id)
		redis.call('PEXPIRE', index, life)
	else
		redis.call('ZREM', index, id)
	end

	local b = get(breaker, id)
	b.v = v
	for k, value in pairs(told or {}) do b[k] = value end
	local text = cjson.encode(b)
	redis.call('PUBLISH', channel, text)
	return text
end

-- forget closes the breaker, and keeps for its time what has one.
local function forget()
	local h, at, ends = redis.call('HMGET', breaker, 'reset', 'blind'), recovery()
	redis.call('DEL', breaker)
	if h[1] and now - h[1] < lately then redis.call('HSET', breaker, 'reset', h[1]) end
	if tonumber(h[2] or 0) > now then redis.call('HSET', breaker, 'blind', h[2]) end
	if ends > now then redis.call('HSET', breaker, 'recovered', int(at) .. ' ' .. int(ends)) end
end

local function unchanged(id) return cjson.encode(get(breaker, id)) end

-- apart is unchanged, for a failure that isn't in this row.
local function apart(id, row)
	local b = get(breaker, id)
	b.apart = tonumber(row or 0) -- none if an older version of this script has begun it
	return cjson.encode(b)
end

-- listed reports whether a breaker is that of a listed tool: the names of others, and keys, are what agents choose.
local function listed(id) return string.find(id, '^listed/[^/]*$') end

-- room reports whether another breaker may be remembered, beside so many, so that names can't fill the memory.
local function room(id, many)
	if redis.call('EXISTS', breaker) == 1 or listed(id) then return true end
	redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. int(now))
	return redis.call('ZCARD', index) < (many or most)
end

-- raise makes a time of the breaker a later one, unless it is.
local function raise(field, at)
	redis.call('HSET', breaker, field, int(math.max(redis.call('HGET', breaker, field) or 0, at)))
end

-- open opens the breaker until a call and until a Probe may be the next probe, which isn't sooner if it can't see what is
-- wrong.
local function open(at, probe_at, cause)
	forget()
	if redis.call('HEXISTS', breaker, 'blind') == 1 then probe_at = math.max(probe_at, at) end
	redis.call('HSET', breaker, 'state', 'open', 'cause', cause, 'opened', int(now))
	redis.call('HSET', breaker, 'at', int(at), 'probe_at', int(probe_at))
end

local ops = {}

-- page returns a hundred IDs of breakers that expire later than the cursor says, with all that expire when the last of
-- these does, and the next cursor, which is 0 if there are no more. What changes, or is prolonged, meanwhile, expires
-- later than before, and is on a later page, but for what was reset, of which a message tells. So that a listing comes to
-- an end, the cursor also says when it began, and where it ends: once all that is left has moved since it began, at what
-- has moved by then, since none of that is prolonged again within the hour, and of what changes a message tells.
local function page(cursor)
	local from, began, ends = string.match(cursor, '^(%S+) (%d+) (%d+)$')
	local found = redis.call('ZRANGEBYSCORE', index, '(' .. from, '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
	if #found == 0 then return {since = since(), next = '0'} end
	local last = found[#found]
	local ids = redis.call('ZRANGEBYSCORE', index, '(' .. from, last)

	if ends == '0' and tonumber(last) > began + life then ends = int(now + life) end
	local over = #found < 200 or ends ~= '0' and tonumber(last) > tonumber(ends)
	return {since = since(), next = over and '0' or last .. ' ' .. began .. ' ' .. ends, ids = ids}
end

-- sync returns what the fleet's memory is, and the first page of the breakers in it unless the member knows all of them.
function ops.sync(memory, known)
	local s, h = since(), redis.call('HMGET', version, 'n', 'of', 'forked')
	local n = h[1] or '0'
	local reply = {since = s, n = tonumber(n), now = now, members = live(), complete = s == memory and n == known}
	reply.of = {since = h[2] or '', n = tonumber(h[3] or 0)}
	if not reply.complete then reply.page = page(int(now - 1) .. ' ' .. int(now) .. ' 0') end
	return cjson.encode(reply)
end

-- list returns another page of the breakers.
function ops.list(cursor) return cjson.encode(page(cursor)) end

-- read returns the breakers with these IDs. It keeps those for longer whose number isn't for agents to choose.
function ops.read(...)
	local all = {}
	for i, id in ipairs({...}) do
		local key = KEYS[5 + i]
		if redis.call('EXISTS', key) == 1 then
			local h = redis.call('HMGET', key, 'state', 'failures')
			local expires = tonumber(redis.call('ZSCORE', index, id) or 0)
			if expires < now + keep and (h[1] == 'isolated' or listed(id) and (h[1] or h[2])) then
				redis.call('PEXPIRE', key, life)
				redis.call('ZADD', index, int(now + life), id)
				redis.call('PEXPIRE', index, life)
			end
			table.insert(all, get(key, id))
		end
	end
	if #all == 0 then return '[]' end
	return cjson.encode(all)
end

-- leave forgets the member.
function ops.leave()
	redis.call('ZREM', members, me)
	return '{}'
end

-- putOff makes calls wait until then before one is the probe, after one of this member that has failed, but not those
-- of members who are owed a turn. A Probe puts off all, since each member that has one has its turn soon; but it may be
-- what is broken, so all of them together can't do so for ever. It reports whether all calls wait. A member whose Probe
-- has failed asks for the next one until then.
local function putOff(due, cooldown, cause, asks)
	if cause == 'probe' then
		redis.call('HSETNX', breaker, 'opened', int(now)) -- unless an older version of this script has opened it
		due = math.min(due, redis.call('HGET', breaker, 'opened') + cooldowns * cooldown)
	else
		redis.call('HSET', breaker, 'opened', int(now))
	end

	local mine, all = turn('calls', breaker, me), cause == 'probe' or not owed(cause)
	for _, field in ipairs(present('failed:')) do
		local nth, before = turn('calls', breaker, string.sub(field, #'failed:' + 1))
		if all or nth > mine then redis.call('HSET', breaker, field, int(nth) .. ' ' .. int(math.max(before, due))) end
	end
	local ends = cause == 'probe' and asks or due
	redis.call('HSET', breaker, turns[cause] .. me, redis.call('HINCRBY', breaker, 'probes', 1) .. ' ' .. int(ends))
	if all then raise('at', due) end
	return all
end

-- failure counts n failures of a breaker that is closed, and opens it if they are enough, for a cooldown since the last
-- one. They are in a row with those before if the member had heard of all of them, up to that version. Otherwise calls
-- may have succeeded between: the member is told which row they are apart from, and tells of them again, unless one has
-- succeeded by the time that it has heard of the row. A failure of a probe puts off the next one; if it doesn't do so
-- for all, the others have to ask when they may send it. After that of a Probe, none asks the backend before the time
-- has passed that it has asked for. Failures of before a reset, or before a probe has closed it, are forgotten.
--
-- What had failed before the member's last success, here or elsewhere, is over: while the fleet has no failures, its
-- members tell of no success otherwise.
function ops.failure(id, n, heard, row, failures, quorum, cooldown, interval, probe, at, cause, succeeded, after)
	at = past(at)
	local h = redis.call('HMGET', breaker, 'state', 'reset', 'lease', 'until', 'last')
	local state, last = h[1], math.max(tonumber(h[5] or 0), at)
	if at < tonumber(h[2] or 0) or not state and at < recovery() then return unchanged(id) end
	if state == 'open' and probe == '1' then
		local out = tonumber(cooldown)
		if cause == 'probe' then
			if tonumber(after) > 0 then out = math.max(out, after + interval) end -- the next Probe's time
			raise('probe_at', at + after)
			if redis.call('HGET', breaker, 'prober') == me then redis.call('HDEL', breaker, 'prober') end
		end
		local all = putOff(at + out, cooldown, cause, now + math.max(interval, after) + late)
		redis.call('HSET', breaker, 'last', int(last))
		local goesOn = h[3] and tonumber(h[4]) > now and (h[3] ~= me or cause == 'probe') -- a call that is the probe
		if not goesOn then redis.call('HDEL', breaker, 'lease', 'until', 'leased', 'vain') end
		if all then return changed(id) end
		changed(id, {wait = soon})
		return unchanged(id)
	end
	if state or not room(id) then return unchanged(id) end

	local f = redis.call('HMGET', breaker, 'failures', 'v', 'row', 'succeeded')
	local before, over = tonumber(f[1] or 0), tonumber(f[4] or 0)
	succeeded = math.min(tonumber(succeeded), at)
	if row ~= '0' and row ~= f[3] or at < over then return unchanged(id) end
	if before > 0 and succeeded > tonumber(h[5] or 0) then
		forget()
		before, last = 0, at
	end
	if before > 0 and f[2] ~= heard then return apart(id, f[3]) end

	if before == 0 then redis.call('HSET', breaker, 'row', int((redis.call('HGET', version, 'n') or 0) + 1)) end
	local total = before + n
	redis.call('HSET', breaker, 'failures', int(total), 'by:' .. me, 1)
	redis.call('HSET', breaker, 'succeeded', int(math.max(over, succeeded)))
	redis.call('HDEL', breaker, 'cause')
	local opens = total >= tonumber(failures) and #present('by:') >= needed(tonumber(quorum))
	if opens then open(last + cooldown, now + half(interval), 'calls') end
	redis.call('HSET', breaker, 'last', int(last))
	return changed(id)
end

-- success forgets the failures of a breaker that is closed, unless one is newer than the success.
function ops.success(id, at)
	local h = redis.call('HMGET', breaker, 'state', 'failures', 'last')
	if h[1] or not h[2] or past(at) < tonumber(h[3] or 0) then return unchanged(id) end
	forget()
	return changed(id)
end

-- recovered closes a breaker whose probe has succeeded, unless a failure is newer. That is remembered, also of one that is
-- closed already; what is over leaves half of the room to what isn't.
function ops.recovered(id, at, cause, cooldown)
	local h = redis.call('HMGET', breaker, 'state', 'failures', 'last')
	at = past(at)
	local failed, rests = at < tonumber(h[3] or 0), not h[1] and not h[2] -- since then
	if h[1] == 'isolated' or h[1] and failed or not room(id, most / 2) then return unchanged(id) end
	if rests and at <= recovery() then return unchanged(id) end

	if not rests and not failed then forget() end
	redis.call('HSET', breaker, 'recovered', int(math.max(at, (recovery()))) .. ' ' .. int(now + lately))
	if failed then return unchanged(id) end
	if h[1] ~= 'open' then return changed(id) end
	if cause == 'probe' then redis.call('HSET', breaker, 'blind', int(now + cooldown)) end
	return changed(id, {cause = cause})
end

-- mayCall returns when a call of the member may be the probe, or may ask for that again. One whose probe was in vain
-- leaves the next one for a while to those who have had no turn since: its own network may be what is broken.
local function mayCall(patience)
	local h = redis.call('HMGET', breaker, 'lease', 'until', 'leased')
	local _, due = turn('calls', breaker, me)
	local out, ends, since = keptOut(breaker, h[1], h[2], h[3]), tonumber(h[2] or 0), owed('calls')
	if out > now then return math.max(due, out) end
	if not since then return due end
	if ends <= now then since = math.max(since, ends) end
	return math.max(due, since + patience)
end

-- mayProbe returns when the member may call its Probe, or may ask for that again: half an interval after the beginning of
-- the last one, or a whole one of its member's if that tells nothing, since it may hang; and half a one later if others
-- have had no turn since the member's own. While the first call after a relapse is the probe, Probes can't see what is wrong.
local function mayProbe(interval)
	local h = redis.call('HMGET', breaker, 'probe_at', 'prober', 'hangs', 'lease', 'until', 'probes', 'blind')
	local due, since = tonumber(h[1]), owed('probe')
	if h[2] and (h[2] ~= me or since) then due = math.max(due, tonumber(h[3] or 0)) end
	if since then due = due + half(interval) end
	if h[7] and h[4] and not h[6] then due = math.max(due, tonumber(h[5])) end
	return due
end

-- take gives the member the lease, and tells the others unless some of them are owed a turn.
local function take(id, term)
	redis.call('HSET', breaker, 'lease', me, 'until', int(now + term), 'leased', int(now))
	local wait = math.max(term, redis.call('HGET', breaker, 'at') - now)
	if not owed('calls') then changed(id, {wait = wait, asks = true}) end
end

-- lease lets a call of the member be the probe of an open breaker, or lets it call its Probe, if it is time. Calls and
-- Probes go on beside each other, as in one server, so only a call has a lease.
function ops.lease(id, cause, term, interval, patience)
	local state = redis.call('HGET', breaker, 'state')
	if state == 'isolated' then return cjson.encode({granted = false, wait = tonumber(term)}) end
	if state ~= 'open' then return cjson.encode({granted = true, wait = 0}) end

	lapse()
	if cause == 'calls' then
		local mine = redis.call('HGET', breaker, 'lease') == me
		local due = mine and now or mayCall(patience)
		if due > now then return cjson.encode({granted = false, wait = due - now}) end
		if not mine then take(id, term) end
		return cjson.encode({granted = true, wait = 0})
	end

	local due, nth = mayProbe(interval), turn(cause, breaker, me)
	if due <= now then nth = redis.call('HINCRBY', breaker, 'probes', 1) end -- that is its turn, also if it tells nothing
	redis.call('HSET', breaker, turns[cause] .. me, int(nth) .. ' ' .. int(math.max(due, now + interval) + interval + late))
	if due > now then return cjson.encode({granted = false, wait = due - now}) end

	redis.call('HSET', breaker, 'probe_at', int(now + half(interval)), 'prober', me, 'hangs', int(now + interval))
	changed(id, {wait = math.max(redis.call('HGET', breaker, 'at') - now, 0), asks = true})
	return cjson.encode({granted = true, wait = 0})
end

-- renew extends the lease of a call that is the probe, or takes it if nobody has it: with all those that have told
-- nothing before it, at whichever member, for as long as one probe may take.
function ops.renew(id, term, longest, patience)
	local h = redis.call('HMGET', breaker, 'state', 'lease', 'until', 'leased', 'vain')
	if h[1] ~= 'open' then return '{}' end
	if h[2] == me then
		local ends = math.min(now + term, h[4] + longest - (h[5] or 0))
		if ends > now then redis.call('HSET', breaker, 'until', int(ends)) end
		return '{}'
	end

	lapse()
	local held = redis.call('HGET', breaker, 'lease')
	if not held and mayCall(patience) <= now then take(id, term) end
	return '{}'
end

-- isolate rejects all calls of all members.
function ops.isolate(id, reason, at)
	if not room(id) then return redis.error_reply('FULL the namespace has too many breakers') end
	redis.call('DEL', breaker)
	redis.call('HSET', breaker, 'state', 'isolated', 'reason', reason, 'cause', 'manual', 'isolated', int(past(at or 0)))
	return changed(id)
end

-- reset closes a breaker, whatever its state is, and remembers that for a while.
function ops.reset(id)
	redis.call('DEL', breaker)
	redis.call('HSET', breaker, 'reset', int(now), 'cause', 'manual')
	return changed(id)
end

-- restore is for a breaker that the server has forgotten: it knows something older if that is of this version at most.
-- If another member was faster, it only adds what this one knows better; it does nothing if the breaker was reset, or has
-- recovered, later. An isolated one may be open by now. As far as the member knows, at is when it was isolated, or when a
-- call or a Probe has failed last, and opened since when Probes that fail may put calls off: if that began anew, they
-- could do so for ever where memory is lost again and again.
function ops.restore(id, state, wait, probe_wait, reason, at, older, opened)
	local h = redis.call('HMGET', breaker, 'state', 'reset', 'v')
	if not h[3] or tonumber(h[3]) > tonumber(older) then
		local reset = h[2] and now - h[2] < lately and past(at) <= tonumber(h[2])
		local over = reset or state ~= 'isolated' and past(at) <= recovery()
		if h[1] == 'open' and state == 'open' then
			raise('last', past(at))
			raise('opened', past(opened))
		end
		if h[1] == 'isolated' or h[1] and state ~= 'isolated' or over or not room(id) then return unchanged(id) end
	end
	if state == 'isolated' then return ops.isolate(id, reason, at) end
	open(now + wait, now + probe_wait, 'calls')
	redis.call('HSET', breaker, 'last', int(past(at)), 'opened', int(past(opened)))
	return changed(id)
end

-- reclose closes a breaker that was closed after this version of the fleet, but not in an older memory of it.
function ops.reclose(id, older)
	local v = redis.call('HGET', breaker, 'v')
	if not v or tonumber(v) > tonumber(older) then return unchanged(id) end
	forget()
	return changed(id)
end

-- compare notes the configurations of the member's breakers, and returns those of others.
function ops.compare(...)
	local old = now - absent * 60
	for _, config in ipairs({...}) do redis.call('HSET', configs, config, int(now)) end
	local all, h = {}, redis.call('HGETALL', configs)
	for i = 1, #h, 2 do
		if tonumber(h[i + 1]) < old then redis.call('HDEL', configs, h[i]) else table.insert(all, h[i]) end
	end
	redis.call('PEXPIRE', configs, keep)
	if #all == 0 then return '[]' end
	return cjson.encode(all)
end

-- tell does other operations, one for each of the breakers: of the arguments, the first half are their IDs, and the other half
-- what to do. It returns what the breakers are then, or were when the command came before.
function ops.tell(...)
	local reply = redis.call('HGET', answer, 'reply')
	if reply then return reply end

	local all, n, replies = {...}, #KEYS - 5, {}
	for i = 1, n do
		local news = cjson.decode(all[n + i])
		breaker = KEYS[5 + i]
		replies[i] = ops[news[1]](all[i], unpack(news, 2))
	end

	reply = '[' .. table.concat(replies, ',') .. ']'
	redis.call('HSET', answer, 'reply', reply)
	redis.call('PEXPIRE', answer, absent) -- no member waits for so long
	return reply
end

fork()
if op ~= 'leave' and op ~= 'lease' then alive() end -- a lease may come late, after the last word of its member
return ops[op](unpack(arg))
