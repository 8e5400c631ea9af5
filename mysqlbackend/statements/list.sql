-- list.sql: the held locks with names in a range, in the order of the names.
--
-- params   first name, end of the range (exclusive), maximum number of rows
-- returns  rows of name, owner, meta, token, since in Unix µs, µs left

SELECT
  name, owner, meta, token,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', since),
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires)
FROM {table}
WHERE name >= ? AND name < ? AND owner <> '' AND expires > UTC_TIMESTAMP(6)
ORDER BY name LIMIT ?
