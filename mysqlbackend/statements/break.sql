-- break.sql: release.sql for the given holder, or for any holder if owner is ''. A roster is not
-- changed.
--
-- params   signal, µs, name, owner, owner
-- returns  see release.sql

UPDATE {table}
SET
  owner = '', since = UTC_TIMESTAMP(6),
  expires = UTC_TIMESTAMP(6) + INTERVAL
    IF(LAST_INSERT_ID(IFNULL(IS_USED_LOCK(?), 0)) = 0, 0, ?) MICROSECOND
WHERE name = ? AND owner NOT IN ('', '*') AND (? = '' OR owner = ?) AND expires > UTC_TIMESTAMP(6)
