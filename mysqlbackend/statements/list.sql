-- list.sql: the held locks with names in a range, in the order of the names.
--
-- params   maximum bytes of a roster, first name, end of the range (exclusive), maximum number of
--          rows
-- returns  rows of name, owner, meta, token, and since, expires and the server's time in µs since
--          1970, is_read_only, and the roster, or NULL if it is longer; {roster}: the column, or
--          NULL if the table has none; and a row without a name, whose is_read_only shows whether
--          the server is read-only
--
-- A demoted master has old rows, or none. The driver closes the connection to it; see
-- conn.QueryContext.

SELECT '' AS name, '' AS owner, '' AS meta, 0, 0, 0, 0,
  CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only, NULL
UNION ALL (
SELECT
  name, owner, meta, token,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), FALSE,
  IF(owner = '*' AND LENGTH({roster}) <= ?, {roster}, NULL)
FROM {table}
WHERE name >= ? AND name < ? AND owner <> '' AND expires > UTC_TIMESTAMP(6)
ORDER BY name LIMIT ?
)
