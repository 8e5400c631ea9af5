-- roster-row.sql: a free row for a name that has none.
--
-- params   name
--
-- The row is like that of a name whose term has ended.

INSERT IGNORE INTO {table} (name, owner, token, since, expires, meta)
SELECT ?, '', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ''
FROM DUAL WHERE CONCAT(@@global.read_only) IN ('0', 'OFF')
