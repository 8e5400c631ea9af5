-- roster-clear.sql: release.sql for the last entry of a roster, if the row is still as
-- roster-read.sql returned it.
--
-- params   signal, µs, name, and owner, token, expires in µs since 1970 as they were
-- returns  see release.sql

UPDATE {table}
SET
  owner = '', roster = NULL, since = UTC_TIMESTAMP(6),
  expires = UTC_TIMESTAMP(6) + INTERVAL
    IF(LAST_INSERT_ID(IFNULL(IS_USED_LOCK(?), 0)) = 0, 0, ?) MICROSECOND
WHERE name = ? AND owner = ? AND token = ?
  AND expires = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
