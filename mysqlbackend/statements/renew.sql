-- renew.sql: a new term for one grant.
--
-- params   TTL in µs, name, owner, fence, fence; 0 is any fence
-- returns  as the insert id: the end of the new term in µs since 2026; 0 if owner does not
--          hold the lock with this fence; 1 if the server is read-only, which changes nothing; see
--          acquire.sql
--
-- With another fence the grant is a later one of the same owner: its statement was executed after
-- a break, and other owners may have had the lock meanwhile.
--
-- A renewal can wait for the row until a later renewal has been answered. So the term only
-- grows; see acquire.sql. The number of changed rows is 0 then, and has no meaning.

UPDATE {table}
SET expires = GREATEST(expires, TIMESTAMP'2026-01-01 00:00:00' + INTERVAL LAST_INSERT_ID(
  IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1,
    TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6)) + ?)) MICROSECOND)
WHERE name = ? AND owner = ? AND (? = 0 OR token = ?) AND expires > UTC_TIMESTAMP(6)
