-- sleep.sql: sleep while the lock is held, but for no longer than its term or so many µs. For MySQL;
-- on MariaDB it is look.sql, again and again.
--
-- params   µs, name
-- returns  0, or 1 or error 1317 where KILL QUERY has ended it
--
-- Look and sleep are one statement: a KILL that follows a release either comes before it, then it
-- sees that the lock is free, or it ends it.

SELECT SLEEP(IFNULL((
  SELECT GREATEST(0, LEAST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires), ?)) FROM {table}
  WHERE name = ? AND owner <> ''
), 0) / 1000000)
