-- Creates records. The argument of a step: state (1 byte), term (8), the place in the index of
-- ids (16 digits), body. The reply to it: the meta of the record that was created, or the
-- record that is there.
local stored = redis.call('MGET', unpack(KEYS, 4))
local before = last
local function create(look)
  local made, set, ids, due, new, n = {}, {}, {}, {}, {}, 0
  last = before
  for i = 1, #stored do
    local key = KEYS[i + 3]
    local v = made[key] or stored[i]
    if v then
      reply[i + 2] = v
    elseif look and redis.call('EXISTS', key) == 1 then
      reply[i + 2] = '' -- a key of another type, which is no record
    else
      local arg = ARGV[i + 4]
      local state, term = unpackMeta('>Bi8', arg)
      last = math.max(now, last + 1)
      local deadline = math.min(now + term, 8e15)
      local meta = pack('>i8i8i8i8B', last, deadline, now, now, state)
      v = meta .. sub(arg, 26) .. meta
      made[key] = v
      n = n + 1
      local id = sub(key, idFrom)
      set[2 * n - 1], set[2 * n] = key, v
      ids[2 * n - 1], ids[2 * n] = sub(arg, 10, 25), id
      due[2 * n - 1], due[2 * n] = score(state, deadline), id
      if follows then new[n] = 'w' .. id end
      reply[i + 2] = meta
    end
  end
  if n == 0 then return true end
  if redis.call('MSETNX', unpack(set)) == 0 then return false end
  wrote(n)
  redis.call('ZADD', KEYS[2], unpack(ids))
  redis.call('ZADD', KEYS[3], unpack(due))
  if follows then log(new) end
  return true
end
if not create(false) then create(true) end
return ended()
