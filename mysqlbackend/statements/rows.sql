-- rows.sql: free rows for the names that have none; see roster-row.sql.
--
-- params   {unions}: the names, in byte order
-- returns  as the insert id: 1 if the server is read-only, which inserts nothing; see acquire.sql
--
-- All statements insert in the order of the names, so that they do not wait for each other in a
-- circle.

INSERT IGNORE INTO {table} (name, owner, token, since, expires, meta)
SELECT n.name, '', 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ''
FROM ({unions}) n
WHERE LAST_INSERT_ID(IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1, 0)) = 0
