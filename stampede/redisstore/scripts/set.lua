-- set: writes an entry without a lease and ends any lease or marker. A client must not send it twice: a
-- late copy would write over what is newer.
-- KEYS    1 entry  2 lease
-- ARGV    1 the entry  2 channel of the key  3 drop channel  4 the key
-- Returns 1, or the error for which nothing was written
-- Redis   6.2
redis.call('SET', KEYS[1], ARGV[1], 'PX', life(ARGV[1]))
redis.call('DEL', KEYS[2])
redis.call('PUBLISH', ARGV[2], 'c')
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
