-- sweep.sql: delete the rows of names that have not been used for long, and not since
-- stale.sql has found them. In this form of DELETE an index can be forced; see renew.sql.
--
-- params   {names}: the names, how long in µs

DELETE {table} FROM {table} FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND expires < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
