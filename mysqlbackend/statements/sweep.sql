-- sweep.sql: delete the rows of names that have not been used for long, and not since
-- stale.sql has returned them. This form of DELETE allows a forced index; see renew-free.sql.
--
-- params   {names}: the names, age in µs

DELETE {table} FROM {table} FORCE INDEX (PRIMARY)
WHERE name IN ({names}) AND expires < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
