-- peers.lua lists the members of a class: their names, when they count as silent, their shares, when they came, when
-- the store has heard of them last, and how far ahead their policies let slots be granted.

local C, M, echo = KEYS[1], KEYS[2], ARGV[1]
local time = redis.call('TIME')
local out = {echo, string.format('%.0f', time[1] * 1000000 + time[2])}
local all = redis.call('ZRANGE', M, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local known = redis.call('HMGET', C, 's:' .. all[i], 'j:' .. all[i], 'a:' .. all[i], 'h:' .. all[i])
  out[#out + 1], out[#out + 2] = all[i], string.format('%.0f', tonumber(all[i + 1]))
  for _, n in ipairs({1, 2, 3, 4}) do out[#out + 1] = known[n] or '0' end
end
return out
