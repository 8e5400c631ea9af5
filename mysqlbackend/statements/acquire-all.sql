-- acquire-all.sql: one attempt to become the holder of several names, or of none of them.
--
-- params   the number of names; {names} twice; {owners}; {names}; the number; {names}; {owners};
--          {metas}; TTL in µs
-- returns  as the insert id:
--          the fence, the same for all names, if each owner is the holder of its name now; a
--          repetition returns the same fence, if all names have it
--          2^62 + the index of the first name that is taken * 2^54 + the µs that its holder has
--          left, at most 2^53 - 1; + 2^53, if that row has a roster; + 2^61, if an owner is the
--          holder of another name;
--          0, if a name has no row;
--          1, if the server is read-only
--          error 3572, or 1205 on MariaDB: a row is locked
--
-- Which names an owner can have, and what it gets, is as in acquire.sql. Any answer but the
-- fence means that the statement has changed nothing.
--
-- All rows are locked before the first of them is checked. No lock is waited for: so the
-- statement is part of no deadlock, whatever the order of the names, it is not late, and it
-- keeps no row locked while another row is. It creates no row, because in a gap that is locked,
-- too, that could be a deadlock.
--
-- For LIMIT, STRAIGHT_JOIN, the forced index and sql_safe_updates see renew-free.sql. The name is
-- no column of the derived tables: MariaDB stores tables with long columns in files.

/*M! SET STATEMENT sql_safe_updates = 0 FOR */ UPDATE /*+ SET_VAR(sql_safe_updates = OFF) */ (
  SELECT i, has, IF(CONCAT(@@global.read_only) NOT IN ('0', 'OFF'), 1, COALESCE(
    (1 << 62) + (MAX(has) OVER () << 61) + MIN(
      IF(has OR expires <= UTC_TIMESTAMP(6)
        OR owner = '' AND expires > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE, NULL,
        ((i - 1) << 54) + IF(owner = '*', 1 << 53, 0) + IF(owner = '', 0,
          LEAST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires), (1 << 53) - 1)))
    ) OVER (),
    IF(COUNT(*) OVER () < ?, 0,
      IF(MIN(has) OVER () AND MIN(token) OVER () = MAX(token) OVER (), MAX(token) OVER (),
        GREATEST(MAX(token) OVER () + 1,
          TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6)))))
  )) AS answer
  FROM (
    SELECT owner, token, expires, FIELD(name, {names}) AS i,
      owner = ELT(FIELD(name, {names}), {owners}) AS has
    FROM {table} FORCE INDEX (PRIMARY) WHERE name IN ({names}) LIMIT ? FOR UPDATE NOWAIT
  ) r
) f STRAIGHT_JOIN {table} t FORCE INDEX (PRIMARY) ON t.name = ELT(f.i, {names})
SET
  t.owner = ELT(f.i, {owners}), t.token = f.answer, t.since = UTC_TIMESTAMP(6),
  t.meta = ELT(f.i, {metas}),
  t.expires = GREATEST(IF(f.has, t.expires, UTC_TIMESTAMP(6)),
    UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)
WHERE LAST_INSERT_ID(f.answer) BETWEEN 2 AND (1 << 62) - 1
