-- sleep.sql: sleep while the lock is held and has no roster, until the end of its term at the
-- latest. For MySQL; on MariaDB the driver repeats held.sql.
--
-- params   maximum time in µs, name
-- returns  0, or 1 or error 1317 if KILL QUERY has ended it; and whether the server is read-only:
--          then the waiter leaves
--
-- The read and the sleep are one statement. A KILL QUERY follows a release. If it comes before
-- this statement, the statement finds the lock free; otherwise it ends the sleep.

SELECT SLEEP(IFNULL((
  SELECT GREATEST(0, LEAST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires), ?)) FROM {table}
  WHERE name = ? AND owner NOT IN ('', '*')
), 0) / 1000000), CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only
