-- Reads an index of a bucket. KEYS: mark, index. ARGV 5: what to read:
--   lex, first, last, limit: ids by their order
--   due, offset, limit:      ids whose deadline has passed, by deadline
--   all:                     all ids
--   count, first, last:      how many ids
if ARGV[5] == 'lex' then return redis.call('ZRANGEBYLEX', KEYS[2], ARGV[6], ARGV[7], 'LIMIT', 0, ARGV[8]) end
if ARGV[5] == 'due' then return redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', ARGV[6], ARGV[7]) end
if ARGV[5] == 'all' then return redis.call('ZRANGE', KEYS[2], 0, -1) end
return redis.call('ZLEXCOUNT', KEYS[2], ARGV[6], ARGV[7])
