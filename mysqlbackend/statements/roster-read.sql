-- roster-read.sql: the row of a name, for a change of its roster.
--
-- params   name
-- returns  a row of owner, token, since, expires and the server's time in µs since 1970, whether
--          the server is read-only, meta, roster; no rows if the name has none
--
-- FOR UPDATE reads what is committed now; see holders.sql. The row is not locked after it. The
-- driver closes the connection to a server that is read-only; see conn.QueryContext. A server
-- with innodb_read_only, such as a reader of Aurora, executes FOR UPDATE without an error.

SELECT
  owner, token,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)),
  CONCAT(@@global.read_only) NOT IN ('0', 'OFF') OR @@global.innodb_read_only AS is_read_only,
  meta, IF(owner = '*', roster, NULL)
FROM {table} FORCE INDEX (PRIMARY) WHERE name = ? FOR UPDATE
