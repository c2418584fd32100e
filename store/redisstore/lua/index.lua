-- Reads an index of a bucket. KEYS: mark, index of ids, index of deadlines. ARGV 5: what to
-- read; the reply to it is the third of the script's:
--   ids, first, last, offset, limit: ids by their order
--   live, offset, limit:     ids of records in flight or unknown whose deadline has passed
--   done, offset, limit:     ids of forgettable records whose deadline has passed; the log of a
--                            move, see begin.lua, is below them
--   all:                     ids of records in flight or unknown
--   count, first, last:      how many ids
local what = ARGV[5]
if what == 'ids' then
  reply[3] = redis.call('ZRANGEBYSCORE', KEYS[2], ARGV[6], ARGV[7], 'LIMIT', ARGV[8], ARGV[9])
elseif what == 'live' then
  reply[3] = redis.call('ZRANGEBYSCORE', KEYS[3], 0, score(2, now), 'LIMIT', ARGV[6], ARGV[7])
elseif what == 'done' then
  reply[3] = redis.call('ZRANGEBYSCORE', KEYS[3], '-100000000000000', score(3, now), 'LIMIT', ARGV[6], ARGV[7])
elseif what == 'all' then
  reply[3] = redis.call('ZRANGEBYSCORE', KEYS[3], 0, '+inf')
else
  reply[3] = redis.call('ZCOUNT', KEYS[2], ARGV[6], ARGV[7])
end
return ended()
