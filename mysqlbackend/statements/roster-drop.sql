-- roster-drop.sql: remove entries of a name whose entries are all holders, or of any roster.
--
-- params   {removed}: the owner of each entry; signal, µs, name; {present}: like {removed}
-- returns  as the number of changed rows: 0 if the row is not such a roster;
--          as the insert id: see release.sql, if the last entry has left
--
-- See roster-take.sql. If all entries are holders, the change lets no waiter of the roster in. If
-- {mayHaveWaiters} is TRUE, the driver reads the roster afterwards and wakes them.

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
  AND ({mayHaveWaiters}
    OR JSON_LENGTH(JSON_EXTRACT({doc}, '$[*].granted')) = JSON_LENGTH({doc}))
  {present}
