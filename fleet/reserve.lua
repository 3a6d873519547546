-- reserve.lua hands out the budget of one class to the members of a fleet. It runs on the store, as
-- one step that nothing interrupts. model.go is the same in Go: change both or neither.
--
-- KEYS: the class, its members, a bucket of it, who waits for that bucket, and which keys pause. All
-- carry the hash tag of the class, so that a cluster keeps them in one slot.
--
-- Times are whole microseconds of the store's clock, and shares are millionths. All numbers stay
-- below 2^53, so that the doubles of Lua hold them exactly. call.go names the arguments and the
-- fields of the answer.

local C, M, B, W, P = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local op, member, store, echo = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
if op == 'ping' then -- It leaves nothing behind, and fails where nothing can be written: a full server still deletes.
  redis.call('HSET', C, 'ping', 1)
  redis.call('HDEL', C, 'ping')
  return {echo}
end
local arg = {}
for i = 5, #ARGV do arg[i - 4] = tonumber(ARGV[i]) end
local seq, fenced, sent, grace, share, horizon, fencing, hold, recovery, turn, number, kind, wanted, need, lead,
  pq, pr, pd, depth, limit, window, offset, from, to, known, lasts, heard = unpack(arg)
local spent = {} -- what left when, without asking
for i = 28, #arg, 2 do spent[#spent + 1] = {units = arg[i], age = arg[i + 1]} end
local SLOTS, FIXED, SLIDING, LOG = 0, 1, 2, 3
local WHOLE = 1000000
local SOON = 1000000 -- 1 s
local JUMP = 2000000 -- how far the clock has to be set forward for that to show

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- int prints a whole number. Lua's tostring would round it to 14 digits.
local function int(n) return string.format('%.0f', n) end

-- numbers reads fields of a hash. A field that is missing is nil.
local function numbers(key, ...)
  local v, n = redis.call('HMGET', key, ...), select('#', ...)
  for i = 1, n do v[i] = tonumber(v[i] or nil) end
  return unpack(v, 1, n)
end

local function remove(m, shares)
  shares = shares - (numbers(C, 's:' .. m) or 0)
  redis.call('HDEL', C, 'q:' .. m, 's:' .. m, 'j:' .. m, 'a:' .. m, 'h:' .. m, 'v:' .. m)
  redis.call('ZREM', M, m)
  return shares
end

-- The class: what has been lost, and who is there.

-- seen is the last time of which the store is sure, joined since when the member knows the clock, and moved by how much slots of the
-- class itself have moved.
local seen, fence, recover, pause, pauses, shares, lost, blank, shortest, longest, moved, absent, last, recorded, joined, told =
  numbers(C, 'seen', 'fence', 'recover', 'pause', 'pauses', 'shares', 'lost', 'blank', 'shortest', 'longest', 'moved',
    's:', 'q:' .. member, 's:' .. member, 'j:' .. member, 'h:' .. member)
fence, recover, pause, pauses, shares, lost, moved = fence or 0, recover or 0, pause or 0, pauses or 0, shares or 0, lost or 0, moved or 0
seen, absent, last, recorded, shortest, longest = seen or now, absent or 0, last or 0, recorded or 0, shortest or horizon, longest or horizon

-- keepPauses keeps the pauses of keys for as long after the last one as the class is kept: the clock may be set.
local function keepPauses()
  local latest = tonumber(redis.call('ZRANGE', P, -1, -1, 'WITHSCORES')[2]) or now
  redis.call('PEXPIRE', P, int(math.ceil((math.max(latest - now, 0) + 2 * hold) / 1000)))
end

-- The clock was set forward if nobody has called for a while, although this call was sent about when the last one came. A newcomer cannot
-- say so. If it is the first to call after a while, the store doubts how much time has passed, until somebody calls who has known the clock
-- for some time, or the newcomer has. Meanwhile the store removes nobody that has a share.
local doubts = false
if now < seen or now - seen > JUMP then
  local back = seen - now
  if back < 0 then back = sent > 0 and now - sent > JUMP and math.max(back, sent - now) or 0 end
  -- What the store has measured stays as far away as it was. But who was to call by now is silent from now on: the store may also have
  -- stood still, and then that member uses its share. What a newcomer has fenced since the clock was set is no further away than by
  -- that fence.
  if back ~= 0 then
    seen, pause, joined = seen - back, pause - back, joined and joined - back
    fence = math.min(fence - back, math.max(fence, now + fencing))
    recover = math.min(recover - back, math.max(recover, now + recovery))
    for _, k in ipairs(redis.call('ZRANGE', P, 0, -1)) do redis.call('ZINCRBY', P, int(-back), k) end
    keepPauses()
    for _, m in ipairs(redis.call('ZRANGE', M, 0, -1)) do
      local at = tonumber(redis.call('ZSCORE', M, m))
      redis.call('ZADD', M, int(math.min(at - back, math.max(at, now - 1))), m)
      if m ~= '' then redis.call('HINCRBY', C, 'j:' .. m, int(-back)) end
    end
  end
  doubts = now - seen > JUMP and (sent == 0 or now - (joined or now) <= JUMP)
end
if sent == 0 then joined = now end

-- Another store may not know the last grants; nothing leaves by them after the time that the member says. The
-- members tell it during the recovery how much of a window they have seen used.
local id = redis.call('HGET', C, 'id')
local other = id ~= store
if fenced == 1 or other then fence, recover = now + fencing, now + recovery end
-- lost is 2 if somebody has said since that it has a share, and blank 1 if all that the store knows it has heard since.
if other then lost, blank = math.max(lost, 1), id and 0 or 1 end
if lost > 0 and share > 0 then lost = 2 end

local gone = redis.call('ZRANGEBYSCORE', M, '-inf', '(' .. int(now - hold))
if doubts then
  local all = gone
  gone = {}
  for _, m in ipairs(all) do
    if (numbers(C, 's:' .. m) or 0) == 0 then gone[#gone + 1] = m end
  end
end
for _, m in ipairs(gone) do
  shares = remove(m, shares)
  if m == member then last, recorded, joined, told = 0, 0, nil, nil end
  if m == '' then absent = 0 end
end

-- After a loss, members say what their shares are. What is missing then belongs to members that have not come back:
-- it is held back under the name '', until they come and claim it. Until then, shares has those of members that have left, too.
local function holdBack(n)
  shares, absent = shares - absent + n, n
  if n > 0 then
    redis.call('HSET', C, 's:', int(n))
    redis.call('ZADD', M, 'NX', int(now - 1), '')
  else
    redis.call('HDEL', C, 's:')
    redis.call('ZREM', M, '')
  end
end
if lost > 0 and now >= recover then
  local missing, had = WHOLE - shares, shares > 0 or lost == 2 -- else there were no members
  lost, shares = 0, 0
  for _, m in ipairs(redis.call('ZRANGE', M, 0, -1)) do shares = shares + (numbers(C, 's:' .. m) or 0) end
  if had and missing > 1000 then
    redis.call('ZREM', M, '') -- what an earlier loss has left is held back as long as the rest
    holdBack(absent + missing)
  end
end

-- The sum of the shares never exceeds the whole: a member gets more only when others have said
-- that they know of having less.
local target = recorded
local stale = false -- a call of a member that has left, older than its last one: it does not bring the member back
if last == 0 then
  local names = redis.call('HGET', C, 'left') or '' -- of those that have left last, with the numbers of these calls
  local _, at = string.find(names, '\n' .. member .. ' ', 1, true)
  stale = seq <= (at and tonumber(string.match(string.sub(names, at + 1), '^%d+')) or 0)
end
if seq > last and not stale then
  if absent > 0 and recorded == 0 then holdBack(math.max(absent - share, 0)) end
  local at = now
  if sent > 0 then at = math.min(sent, now) end
  -- If the clock was set forward, and the member has not heard yet, its next call has to say that it is there.
  redis.call('ZADD', M, int(math.max(at + grace, now - 1)), member)
  local others = shares - recorded
  local part = math.floor(WHOLE / redis.call('ZCARD', M))
  -- During a recovery each keeps what it has. What it gave up would seem to be of a member that has not come back; see holdBack. Who comes
  -- again under its name has what it said before. If the store has that from before the loss, it may have been less by then.
  if now < recover then part = lost > 0 and blank == 1 and math.max(share, recorded) or share end
  target = math.max(0, math.min(part, WHOLE - others))
  recorded = math.max(share, target)
  shares = others + recorded
  last = seq
end

-- A member fences a store that has lost its grants by its own horizon. So no slot begins later after its grant than the
-- shortest horizon of all members; what was granted before a member with a shorter one came has to end first.
local function heed()
  local was, low, high = shortest, nil, nil
  for _, m in ipairs(redis.call('ZRANGE', M, 0, -1)) do
    local h = numbers(C, 'h:' .. m)
    if h then low, high = math.min(low or h, h), math.max(high or h, h) end
  end
  shortest, longest = low or horizon, high or horizon
  if shortest < was then fence = math.max(fence, now + 2 * was) end
end
local telling = last > 0 and seq == last and (told ~= horizon or horizon < shortest)
if telling then redis.call('HSET', C, 'h:' .. member, int(horizon)) end
if telling or #gone > 0 then heed() end
local reach = math.min(horizon, shortest)

local silent = 0 -- the shares of those who may send without asking
for _, m in ipairs(redis.call('ZRANGEBYSCORE', M, '-inf', '(' .. int(now))) do
  if m ~= member then silent = silent + (numbers(C, 's:' .. m) or 0) end
end
local lasting = silent -- of members that are known: after a loss, most others are claimed within a moment
if lost > 0 and shares > 0 then silent = silent + math.max(WHOLE - shares, 0) end -- they have not said so yet

-- A pause concerns a key, or the class. Keys pause until the scores in P, at most 1024 of them. The class counts
-- these pauses and names the last 64 keys, so that each member hears of them, of one with each answer.
local key = string.sub(B, #C + 9)

-- pauseOf returns until when a key pauses; 0 if it does not.
local function pauseOf(k)
  local till = tonumber(redis.call('ZSCORE', P, k) or 0)
  return till > now and till or 0
end

local function pauseKey()
  redis.call('ZADD', P, int(math.max(pauseOf(key), now + wanted)), key)
  local over = math.max(redis.call('ZCOUNT', P, '-inf', int(now)), redis.call('ZCARD', P) - 1024)
  if over > 0 then redis.call('ZREMRANGEBYRANK', P, 0, over - 1) end
  keepPauses()
  pauses = pauses + 1
  redis.call('HSET', C, 'pauses', int(pauses), 'k:' .. int(math.fmod(pauses, 64)), key)
end

if op == 'pause' and key == '' then pause = math.max(pause, now + wanted) end
if op == 'pause' and key ~= '' then pauseKey() end
local whose, paused = '', 0 -- the key that the answer speaks of, and until when it pauses
if key ~= '' then whose, paused = key, pauseOf(key) end
local quiet = math.max(pause, paused) -- until then nothing leaves of the bucket
if paused == 0 and heard ~= pauses then
  if heard > pauses then heard = 0 end -- that was another store
  heard = math.max(heard, pauses - 64) + 1
  whose = redis.call('HGET', C, 'k:' .. int(math.fmod(heard, 64))) or ''
  paused = pauseOf(whose)
end
if paused == 0 then whose = '' end

redis.call('HSET', C, 'id', store, 'seen', int(doubts and seen or now), 'fence', int(fence), 'recover', int(recover), 'pause', int(pause),
  'lost', int(lost), 'blank', int(blank or 0), 'shares', int(shares), 'shortest', int(shortest), 'longest', int(longest))
if not stale then
  redis.call('HSET', C, 'q:' .. member, int(last), 's:' .. member, int(recorded), 'j:' .. member, int(joined or now), 'a:' .. member, int(now))
end
if op == 'leave' and last > 0 and seq == last then -- else it has come again under its name
  local rest = remove(member, shares)
  if lost == 0 then shares = rest end
  heed()
  local names = '\n' .. member .. ' ' .. int(seq) .. (redis.call('HGET', C, 'left') or '')
  redis.call('HSET', C, 'shares', int(shares), 'shortest', int(shortest), 'longest', int(longest), 'left', string.sub(names, 1, 1000))
end
local members = redis.call('ZCARD', M)
local ttl = int(math.ceil(math.max(2 * hold, pause - now) / 1000))
redis.call('PEXPIRE', C, ttl)
redis.call('PEXPIRE', M, ttl)

-- The last grant of a member to a bucket, so that a repeated call gets the same.

local function recordedGrant(m)
  local text = redis.call('HGET', B, 'g:' .. m)
  if not text then return nil end
  local n, k, first, rem, span, till = string.match(text, '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
  return {number = tonumber(n), k = tonumber(k), first = tonumber(first), rem = tonumber(rem), span = tonumber(span), till = tonumber(till)}
end

local function record(m, g)
  redis.call('HSET', B, 'g:' .. m,
    int(g.number) .. ' ' .. int(g.k) .. ' ' .. int(g.first) .. ' ' .. int(g.rem) .. ' ' .. int(g.span) .. ' ' .. int(g.till))
end

-- forgetGone deletes the grants of members that are gone.
local function forgetGone()
  for _, field in ipairs(redis.call('HKEYS', B)) do
    local m = string.match(field, '^[gf]:(.*)$')
    if m and not redis.call('ZSCORE', M, m) then redis.call('HDEL', B, field) end
  end
end

local function refused(retry) return {number = number, k = 0, first = 0, rem = 0, span = 0, till = retry} end

-- Slots: departure times, one period apart.

-- advance returns the slot n periods after a slot.
local function advance(us, rem, n)
  local sum = rem + n * pr
  local rest = math.fmod(sum, pd)
  return us + n * pq + (sum - rest) / pd, rest
end

-- wait puts the member in the line for the next slot that comes within the horizon. Whose last slot
-- is the longest ago comes first, so that an urgent item of an idle member passes the bulk of others.
local function wait(retry, had)
  redis.call('ZADD', W, 'NX', had and int(had.first) or 0, member)
  redis.call('PEXPIRE', W, int(math.ceil((retry - now) / 1000) + 10000))
  return refused(retry)
end

-- setBack keeps the line as it was when the clock was set back: who had a slot before that has waited longer than who had one since.
local function setBack(back)
  for _, field in ipairs(redis.call('HKEYS', B)) do
    local m = string.match(field, '^g:(.*)$')
    local g = m and recordedGrant(m)
    if g then
      g.first = g.first - back
      record(m, g)
    end
  end
  for _, m in ipairs(redis.call('ZRANGE', W, 0, -1)) do redis.call('ZINCRBY', W, int(-back), m) end
end

-- nextSlot returns the slot after those that were granted, how many the silent members are owed, and when the burst is full.
local function nextSlot(had)
  local us, rem, at, owed, full = numbers(B, 'us', 'rem', 'at', 'owed', 'full')
  us, rem, at, owed, full = us or 0, rem or 0, at or now, owed or 0, full or 0
  if at > now then
    us, full = us - (at - now), full - (at - now)
    redis.call('HSET', B, 'us', int(us), 'at', int(now), 'full', int(full))
    setBack(at - now)
    if had then had.first = had.first - (at - now) end
  end
  return us, rem, owed, full
end

-- leadTo notes which slot comes next.
local function leadTo(us, rem, owed, full)
  full = math.max(full, us + depth) -- when the burst of each member is there again, whatever that of this one is
  redis.call('HSET', B, 'us', int(us), 'rem', int(rem), 'at', int(now), 'owed', int(owed), 'full', int(full))
  redis.call('PEXPIRE', B, int(math.ceil(math.max(full - now, 0) / 1000) + 10000))
end

-- moveSlots moves the next slot, and has members move what they have been granted. It does so for the class itself only, of
-- which each member hears soon. What was granted before a loss stays: it has to end before the fence. A call may come again.
local function moveSlots()
  if key ~= '' or kind ~= SLOTS or now < recover or last == 0 or number <= (numbers(C, 'v:' .. member) or 0) then return end
  local us, rem, owed, full = nextSlot()
  leadTo(math.max(us, now) + wanted, rem, owed, full)
  moved = moved + wanted
  redis.call('HSET', C, 'moved', int(moved), 'v:' .. member, int(number))
end

local function takeSlots(had)
  local us, rem, owed, full = nextSlot(had)
  if rem >= pd then us, rem = us + 1, 0 end -- the last member to ask had another rate
  -- A slot that was lost begins before the fence. So the first one after it is a gap later.
  local due = math.max(us, fence + math.ceil(pq + pr / pd), quiet) -- the slot has been free since, whoever asked
  local start = math.max(now + lead - depth, due)
  if us < start then us, rem = start, 0 end

  local f = WHOLE - silent
  if f < WHOLE / 64 then return refused(now + reach) end
  -- A block is granted when all of it lies within reach, or half of that.
  local period = (pq + pr / pd) * (WHOLE / f)
  local whole = math.max(math.min(wanted, math.floor(reach / 2 / period)), 1)
  local ahead = redis.call('ZRANK', W, member)
  if not ahead then ahead = redis.call('ZCOUNT', W, '-inf', had and '(' .. int(had.first) or '(0') end
  local free = math.max(us, due + ahead * turn) - reach + math.ceil((whole - 1) * period)
  if now <= free then return wait(free + 1, had) end
  redis.call('ZREM', W, member)
  if ahead > 0 then redis.call('ZREMRANGEBYRANK', W, 0, ahead - 1) end -- they have missed their turns

  -- Items of several units need whole blocks: then the slot that begins last within reach counts, too.
  local last_too = need > 1 and 1 or 0
  local k = math.max(math.min(wanted, math.max(1, math.floor((now + reach - us) / period) + last_too)), need)
  local skip = 0 -- slots that the silent members use
  if f < WHOLE then
    owed = owed + k * (WHOLE - f)
    local rest = math.fmod(owed, f)
    skip, owed = (owed - rest) / f, rest
  end
  local g = {number = number, k = k, first = us, rem = rem, span = k + skip, till = moved}
  us, rem = advance(us, rem, k + skip)
  leadTo(us, rem, owed, full)
  return g
end

-- Windows: units, which may leave until a time.

-- carried returns how much of the window members have seen used before the store lost it, and
-- until when all of that counts: in a sliding window until the next one begins, in which it fades.
local function carried(at)
  local carry, till = numbers(B, 'carry', 'till')
  carry, till = carry or 0, till or 0
  if at > now then till = till - (at - now) end
  if now >= till then carry, till = 0, 0 end
  local counts = lasts
  if kind == SLIDING then counts = lasts - window end
  if now < recover and counts > 0 then carry, till = math.max(carry, known), math.max(till, now + counts) end
  return carry, till
end

-- least returns how many units there have to be. What needs none has left already.
local function least() return math.max(need, math.min(wanted, 1)) end

local function most() return limit - math.ceil(limit * silent / WHOLE) end

-- relent has a member that was refused because of the shares of silent ones, or of what is earmarked for another, ask again
-- soon: the silent may be back at any time, and the other may want nothing any more.
local function relent(g, taken, theirs)
  if silent > 0 and limit - taken >= least() or theirs > 0 and most() - taken >= least() then g.till = math.min(g.till, now + SOON) end
end

-- keep stores what each window has, and lets it expire when it makes no difference any more.
local function keep(at, carry, till, ttl)
  redis.call('HSET', B, 'at', int(at), 'carry', int(carry), 'till', int(till))
  redis.call('PEXPIRE', B, int(math.ceil(math.max(ttl, till - now) / 1000) + 10000))
end

-- Room in a window comes unit by unit. For a member whose item needs several, and which is behind others by that many, they are
-- earmarked: others leave them. Who is behind is found as in start-time fair queueing (Goyal, Vin and Cheng, 1996).

-- service returns how far the members of the window have been served, how far this one has, and what is earmarked. back is
-- how far the clock was set back.
local function service(back)
  local at, had, units, till = numbers(B, 'served', 'f:' .. member, 'marked', 'marktill')
  local v = {at = at or 0, had = had or 0, units = units or 0, till = (till or 0) - math.max(back, 0), stored = units ~= nil}
  v.whose = v.stored and redis.call('HGET', B, 'mark')
  return v
end

-- valid reports whether others leave what is earmarked. left is how many units the member may get while the window goes on. If these
-- are too few, it waits for the next window, and others use what is left of this one. A member that is silent does not come for them.
local function valid(v, left)
  return v.whose and now <= v.till and v.units <= left and tonumber(redis.call('ZSCORE', M, v.whose) or 0) >= now
end

-- others returns how many units the member leaves to another one: none if it tells what has left already. A member for which
-- nothing waits any more needs none.
local function others(v, left)
  if v.whose == member and wanted == 0 and need == 0 then v.whose, v.units = false, 0 end
  if v.whose == member or need == 0 or not valid(v, left) then return 0 end
  return v.units
end

-- unserved leaves units to the member that calls, which asks again at retry. The member that has been served the least far comes first.
-- What has left already takes no turn: it changes nothing.
local function unserved(v, retry, left)
  if need == 0 then return end
  if v.whose ~= member and valid(v, left) and (numbers(B, 'f:' .. v.whose) or 0) <= v.had then return end
  v.whose, v.units = false, 0
  if need > 1 and need <= most() and v.had + need <= v.at then v.whose, v.units, v.till = member, need, retry + turn end
end

-- served notes that the member gets units. It stays behind by no more than it wants at once.
local function served(v, units)
  if units == 0 then return end
  local start = math.max(v.had, v.at - wanted)
  redis.call('HSET', B, 'served', int(math.max(v.at, start)), 'f:' .. member, int(start + units))
  if v.whose == member and need > 0 then v.whose = false end
end

local function keepEarmark(v)
  if v.whose then redis.call('HSET', B, 'mark', v.whose, 'marked', int(v.units), 'marktill', int(v.till))
  elseif v.stored then redis.call('HDEL', B, 'mark', 'marked', 'marktill') end
end

local function takeWindow()
  if from == 0 then
    from = now - math.fmod(now + offset, window)
    to = from + window
  elseif now < from or now >= to then
    return refused(now + 1000) -- these are the bounds of another window
  end
  local was, used, before, at = numbers(B, 'from', 'used', 'before', 'at')
  was, used, before, at = was or from, used or 0, before or 0, at or now
  if was > from then -- the clock was set back: this window goes on
    from, to = was, to + (was - from)
  elseif was < from then
    if kind == SLIDING and was + window == from then before = used else before = 0 end
    used = 0
  end
  local carry, till = carried(at)
  if kind == SLIDING and now < recover and lasts > 0 then used = math.max(used, known) end -- it weighs until the next window ends
  for _, use in ipairs(spent) do
    if kind == SLIDING and now >= from and now - use.age < from then before = before + use.units else used = used + use.units end
    if till > 0 then carry = carry + use.units end
  end

  local v = service(at - now)
  local weight = 0
  if before > 0 then weight = math.ceil(before * (math.min(to - now, window) / window) + 0.001) end
  local taken = math.max(used + weight, carry)
  local may = most() - math.max(used, carry)
  local theirs = others(v, may)
  local room = most() - taken - theirs
  local g
  if now < recover then
    g = refused(recover)
  elseif room < least() then
    g = refused(to)
    local left = most() - used - theirs - least()
    if before > 0 and left > 0 then
      local soonest = now + math.min(turn, math.max(math.floor(window / 32), 1000))
      g.till = math.min(to, math.max(to - math.floor(window * (left / before)), soonest))
    end
    if till > 0 and left >= weight then g.till = till end
    relent(g, taken, theirs)
    unserved(v, g.till, may)
  else
    local k = math.min(wanted, room)
    served(v, k)
    used = used + k
    if till > 0 then carry = carry + k end
    g = {number = number, k = k, first = from, rem = 0, span = 0, till = to}
  end
  redis.call('HSET', B, 'from', int(from), 'used', int(used), 'before', int(before))
  keepEarmark(v)
  local ttl = to - now
  if kind == SLIDING then ttl = ttl + window end
  keep(now, carry, till, ttl)
  return g, math.max(used + weight, carry)
end

local function giveBackWindow()
  local was, used, carry = numbers(B, 'from', 'used', 'carry')
  if was ~= from then return end
  redis.call('HSET', B, 'used', int(math.max(used - wanted, 0)), 'carry', int(math.max(carry - wanted, 0)))
  record(member, refused(0))
end

-- A sliding log has one counter for each 256th part of its window, a grain. What leaves counts in the
-- grain in which it leaves at the latest, until the whole of that grain is older than the window.
local function takeLog()
  local grain = math.ceil(window / 256)
  local total, oldest, at, ahead = numbers(B, 'total', 'oldest', 'at', 'ahead')
  total, oldest, at, ahead = total or 0, oldest or 0, at or now, ahead or 0
  local carry, till = carried(at - ahead)
  local v = service(at - ahead - now)
  local at_ = math.max(now + ahead, at) -- a clock of the bucket's own, which is never set back
  ahead = at_ - now
  local first = math.ceil((at_ - window) / grain) - 1 -- the oldest grain that counts
  while oldest < first do
    if total == 0 then oldest = first break end
    total = total - (numbers(B, 'b' .. int(oldest)) or 0)
    redis.call('HDEL', B, 'b' .. int(oldest))
    oldest = oldest + 1
  end
  local ttl = grain + 2 * lead
  local current = math.floor((at_ + ttl) / grain)
  local function add(part, n)
    if n == 0 or part < oldest then return end
    total = total + n
    redis.call('HINCRBY', B, 'b' .. int(part), int(n))
    if till > 0 then carry = carry + n end
  end
  for _, use in ipairs(spent) do add(math.floor((at_ + ttl - use.age) / grain), use.units) end

  local taken = math.max(total, carry)
  local theirs = others(v, most())
  local room = most() - taken - theirs
  local g
  if now < recover then
    g = refused(recover)
  elseif room < least() then
    g = refused(math.max((oldest + 1) * grain + window - ahead, now + 1000))
    relent(g, taken, theirs)
    unserved(v, g.till, most())
  else
    local k = math.min(wanted, room)
    served(v, k)
    add(current, k)
    g = {number = number, k = k, first = current, rem = 0, span = 0, till = now + ttl}
  end
  redis.call('HSET', B, 'total', int(total), 'oldest', int(oldest), 'ahead', int(ahead))
  keepEarmark(v)
  keep(at_, carry, till, window + 2 * grain + ttl)
  return g, math.max(total, carry)
end

local function giveBackLog()
  local field = 'b' .. int(from)
  local counted, total, carry = numbers(B, field, 'total', 'carry')
  if not counted or counted < wanted then return end
  redis.call('HSET', B, field, int(counted - wanted), 'total', int(total - wanted), 'carry', int(math.max(carry - wanted, 0)))
  record(member, refused(0))
end

-- usedOnly returns how much of the window is used, and takes no more of it: for a call that gets again what it got.
local function usedOnly()
  wanted, need, spent = 0, 0, {}
  if kind == SLOTS then return 0 end
  local _, n = (kind == LOG and takeLog or takeWindow)()
  return n
end

local g, used = refused(0), 0
local had = op ~= 'leave' and op ~= 'pause' and recordedGrant(member)
if op == 'take' and had and had.number >= number then
  if had.number == number then g, used = had, usedOnly() end -- an older call came late: it gets nothing
elseif op == 'take' then
  if not had and redis.call('HLEN', B) > 5 * members + 300 then forgetGone() end
  if kind == SLOTS then g = takeSlots(had)
  elseif kind == LOG then g, used = takeLog()
  else g, used = takeWindow() end
  if g.k > 0 or #spent > 0 then record(member, g) end
elseif op == 'back' and kind ~= SLOTS and had and had.number < number then
  if kind == LOG then giveBackLog() else giveBackWindow() end
elseif op == 'move' then
  moveSlots()
end
local line = 0
if kind == SLOTS then line = redis.call('ZCARD', W) end
local ended = redis.call('TIME')
local took = math.max(ended[1] * 1000000 + ended[2] - now, 0)
return {echo, now, members, target, recover, pause, g.k, g.first, g.rem, g.span, g.till, used or 0, line, heard, paused, shortest, longest, took, lasting, moved, whose}
