-- roster-drop.sql: remove holders of a name whose entries are all holders.
--
-- params   {removed}: each of the holders; signal, µs, name; {present}: each of the holders
-- returns  as the number of changed rows: 0 if the row is not such a roster;
--          as the insert id: see release.sql, if the last holder has left
--
-- See roster-take.sql. There are no waiters, so the change wakes no waiter of the roster.

UPDATE {table}
SET
  {removed}
  owner = IF(JSON_LENGTH({doc}) = 0, '', '*'),
  expires = IF(owner = '', UTC_TIMESTAMP(6) + INTERVAL
    IF(LAST_INSERT_ID(IFNULL(IS_USED_LOCK(?), 0)) = 0, 0, ?) MICROSECOND, expires),
  token = IF(owner = '', token,
    GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6)))),
  since = UTC_TIMESTAMP(6), roster = IF(owner = '', NULL, roster)
WHERE name = ? AND owner = '*' AND expires > UTC_TIMESTAMP(6)
  AND JSON_LENGTH(JSON_EXTRACT({doc}, '$[*].granted')) = JSON_LENGTH({doc})
  {present}
