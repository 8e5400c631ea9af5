-- turn-sleep.sql: sleep while the roster of a name is the one that was read. For MySQL; on MariaDB
-- the driver repeats roster-look.sql.
--
-- params   maximum time in µs, name, token that was read
-- returns  0, or 1 or error 1317 if KILL QUERY has ended it
--
-- The read and the sleep are one statement; see sleep.sql.

SELECT SLEEP(IFNULL((
  SELECT ? FROM {table} WHERE name = ? AND owner = '*' AND token = ?
), 0) / 1000000)
