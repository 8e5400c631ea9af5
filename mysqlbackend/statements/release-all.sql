-- release-all.sql: release.sql for several grants, except those whose rows are locked now.
--
-- params   {names} twice; {owners}; {names}; {signals}; {names}; their number; {names}; µs
-- returns  as the insert id, for the name with the index i: bit 2i, if its owner held the lock;
--          bit 2i + 1, if the lock is also kept for a first waiter
--
-- It never waits, as renew-free.sql: a row that stays locked would delay the release of the
-- other rows.

/*M! SET STATEMENT sql_safe_updates = 0 FOR */ UPDATE /*+ SET_VAR(sql_safe_updates = OFF) */ (
  SELECT i, has, waits, BIT_OR(IF(has, (1 + 2 * waits) << 2 * (i - 1), 0)) OVER () AS answer
  FROM (
    SELECT FIELD(name, {names}) AS i,
      owner = ELT(FIELD(name, {names}), {owners}) AND expires > UTC_TIMESTAMP(6) AS has,
      IS_USED_LOCK(ELT(FIELD(name, {names}), {signals})) IS NOT NULL AS waits
    FROM {table} FORCE INDEX (PRIMARY) WHERE name IN ({names}) LIMIT ? FOR UPDATE SKIP LOCKED
  ) r
) f STRAIGHT_JOIN {table} t FORCE INDEX (PRIMARY) ON t.name = ELT(f.i, {names})
SET
  t.owner = '', t.since = UTC_TIMESTAMP(6),
  t.expires = UTC_TIMESTAMP(6) + INTERVAL IF(f.waits, ?, 0) MICROSECOND
WHERE f.has AND LAST_INSERT_ID(f.answer) > 0
