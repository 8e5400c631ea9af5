-- roster-row.sql: a free row for a name that has none.
--
-- params   name
-- returns  as the insert id: 1 if the server is read-only, which inserts nothing; see acquire.sql
--
-- The row is like that of a name whose term has ended.

INSERT IGNORE INTO {table} (name, owner, token, since, expires, meta)
SELECT ?, '', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ''
FROM DUAL WHERE LAST_INSERT_ID(IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1, 0)) = 0
