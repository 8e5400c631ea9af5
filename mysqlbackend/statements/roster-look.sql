-- roster-look.sql: the roster of a name, for its waiters.
--
-- params   token that the waiter has seen, name
-- returns  a row of owner, token, the server's time in µs since 1970, and roster, which is NULL
--          if the token is still the same
--
-- A plain SELECT waits for no row, and does not delay a statement that locks one.

SELECT
  owner, token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
  IF(owner = '*' AND token <> ?, roster, NULL)
FROM {table} FORCE INDEX (PRIMARY) WHERE name = ?
