-- acquire.sql: one attempt to become the holder.
--
-- params   name, owner, TTL in µs, meta, first, owner, owner, owner, owner, meta, owner, TTL;
--          first is 1 if owner is the first waiter
-- returns  as the insert id, which is part of the answer itself:
--          the fence, if owner is the holder now;
--          2^62 + the µs that the holder has left, if another owner holds the lock;
--          2^62 + 2^61 + the µs that the last entry has left, if the row has a roster;
--          2^62, if the lock is free, but kept for the first waiter
--          error 1048, if the server is read-only: the statement has changed nothing
--
-- Idempotent by owner: if the holder repeats it, the answer is the same fence and a full term. A
-- late statement after a break makes another grant of the same owner, with another fence; see
-- renew.sql. A refusal changes nothing, so nothing is written.
--
-- A lock that is released while requests wait is kept for the first waiter. A request of the
-- first waiter that began before the release takes nothing: it may be late, and its grant
-- broken since. A free lock that is kept for more than a minute was released before the
-- clock was set back. The term of a lock that can be taken ends now, before the new one begins:
-- only the term of its owner goes on.
--
-- A demoted master with read_only still writes for a user with SUPER or CONNECTION_ADMIN. So
-- the statement itself reads that variable, as text: it is a number or a word. A row without
-- a name is an error in each sql_mode, because it is the only row, and because the name is the
-- primary key. INSERT ... SELECT with a condition instead makes a pair 3 % slower.
--
-- Only the server's clock counts, at the time at which the statement began. A statement that
-- waited for the row gets a shorter term, never a longer one. Two statements of one owner
-- can be executed in the reverse order. So the term of an owner only grows, because the later
-- statement has been answered.
--
-- The server makes the assignments from left to right, and each uses the results of those
-- before it. The sql_mode SIMULTANEOUS_ASSIGNMENT breaks this: such a server is refused. A
-- new fence is never below the clock, so fences also grow after a sweep.

INSERT INTO {table} (name, owner, token, since, expires, meta)
VALUES (
  IF(CONCAT(@@global.read_only) IN ('0', 'OFF'), ?, NULL), ?,
  LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6))),
  UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?
)
ON DUPLICATE KEY UPDATE
  expires = IF(owner = '' AND (? AND since <= UTC_TIMESTAMP(6)
    OR expires > UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE), UTC_TIMESTAMP(6), expires),
  owner = IF(expires <= UTC_TIMESTAMP(6), ?, owner),
  token = IF(owner = ?,
    LAST_INSERT_ID(IF(expires > UTC_TIMESTAMP(6), token,
      GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '2026-01-01', UTC_TIMESTAMP(6))))),
    token + 0 * LAST_INSERT_ID(
      (1 << 62) + IF(owner = '*', 1 << 61, 0)
      + IF(owner = '', 0, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires)))),
  since   = IF(owner = ?, UTC_TIMESTAMP(6), since),
  meta    = IF(owner = ?, ?, meta),
  expires = IF(owner = ?, GREATEST(expires, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND), expires)
