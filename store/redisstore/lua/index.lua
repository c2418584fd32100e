-- Reads an index of a bucket. KEYS: mark, index. ARGV 4: what to read:
--   lex, first, last, limit: ids by their order
--   due, offset, limit:      ids whose deadline has passed, by deadline
--   all:                     all ids
--   count, first, last:      how many ids
if ARGV[4] == 'lex' then return redis.call('ZRANGEBYLEX', KEYS[2], ARGV[5], ARGV[6], 'LIMIT', 0, ARGV[7]) end
if ARGV[4] == 'due' then return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', ARGV[5], ARGV[6]) end
if ARGV[4] == 'all' then return redis.call('ZRANGE', KEYS[2], 0, -1) end
return redis.call('ZLEXCOUNT', KEYS[2], ARGV[5], ARGV[6])
