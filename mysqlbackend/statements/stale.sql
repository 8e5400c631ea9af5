-- stale.sql: the next names of the table, and which of them have not been used for long. It
-- locks nothing, and reads no more rows than it returns.
--
-- params   age in µs, the name before the first one, maximum number of rows
-- returns  rows of name, whether it is stale

SELECT name, expires < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
FROM {table} FORCE INDEX (PRIMARY)
WHERE name > ? ORDER BY name LIMIT ?
