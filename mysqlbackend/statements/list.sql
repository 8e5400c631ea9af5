-- list.sql: the locks that are held and whose names lie in a range, in their order.
--
-- params   first name, end of the range, which is not in it, number of rows
-- returns  rows of name, owner, meta, token, since in Unix µs, µs left

SELECT
  name, owner, meta, token,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since),
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires)
FROM {table}
WHERE name >= ? AND name < ? AND owner <> '' AND expires > UTC_TIMESTAMP(6)
ORDER BY name LIMIT ?
