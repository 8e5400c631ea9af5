-- handoff.sql: release.sql for a holder that has waited and still has the signal of the
-- name. It gives the signal away in the same statement.
--
-- params   signal, signal, µs, name, owner
-- returns  as the number of changed rows: 1 if owner held the lock, 0 if not; the signal is
--          given away only in the first case
--
-- So the next waiter sends its request before this statement has committed. It finds the row
-- free, or waits for the row until the commit: on the disk both commits are one wait.

UPDATE {table}
SET
  owner = '', since = UTC_TIMESTAMP(6),
  expires = UTC_TIMESTAMP(6) + INTERVAL IF(RELEASE_LOCK(?) AND IS_USED_LOCK(?), ?, 0) MICROSECOND
WHERE name = ? AND owner = ? AND expires > UTC_TIMESTAMP(6)
