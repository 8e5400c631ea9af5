-- roster-look.sql: the roster of a name, for its waiters.
--
-- params   token that the waiter has seen, name
-- returns  a row of owner, token, the server's time in µs since 1970, whether the server is
--          read-only, and roster, which is NULL if the token is still the same; for a read-only
--          server see roster-read.sql
--
-- A plain SELECT waits for no row, and does not delay a statement that locks one.

SELECT
  owner, token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
  CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only,
  IF(owner = '*' AND token <> ?, roster, NULL)
FROM {table} FORCE INDEX (PRIMARY) WHERE name = ?
