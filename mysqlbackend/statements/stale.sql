-- stale.sql: names that nobody has used for long. It locks nothing.
--
-- params   how long in µs, number of rows
-- returns  rows of name

SELECT name FROM {table} WHERE expires < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND LIMIT ?
