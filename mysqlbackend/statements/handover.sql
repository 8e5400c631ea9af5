-- handover.sql: release.sql for a holder that has waited and still has the signal of the
-- name: it gives the signal away in the same statement.
--
-- params   signal, signal, µs, name, owner
-- returns  as the number of changed rows: 1 if it held, 0 if not; only in the first case
--          the signal is given away
--
-- So the next who waits is on its way before this statement has committed, and finds the
-- row free, or waits for it as long as that takes: on the disk both commits are one wait.

UPDATE {table}
SET
  owner = '', since = UTC_TIMESTAMP(6),
  expires = UTC_TIMESTAMP(6) + INTERVAL IF(RELEASE_LOCK(?) AND IS_USED_LOCK(?), ?, 0) MICROSECOND
WHERE name = ? AND owner = ? AND expires > UTC_TIMESTAMP(6)
