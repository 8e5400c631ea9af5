-- break.sql: release.sql for whoever holds, where owner is ''.
--
-- params   signal, signal, µs, name, owner, owner
-- returns  see release.sql

UPDATE {table}
SET
  token = token + 0 * LAST_INSERT_ID(IFNULL(IS_USED_LOCK(?), 0)),
  owner = '',
  expires = UTC_TIMESTAMP(6) + INTERVAL IF(IS_USED_LOCK(?) IS NULL, 0, ?) MICROSECOND
WHERE name = ? AND owner <> '' AND (? = '' OR owner = ?) AND expires > UTC_TIMESTAMP(6)
