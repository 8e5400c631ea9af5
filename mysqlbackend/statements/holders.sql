-- holders.sql: the present owners, read after a batch that renewed fewer than expected.
--
-- params   {names}: the names
-- returns  rows of name, owner, token, whether the owner holds the lock, and the end of its term in
--          µs since 2026; no row for a name whose row is locked
--
-- FOR UPDATE reads what is committed now. A plain SELECT can be answered by a replica, where
-- a broken lock is still held.

SELECT
  name, owner, token, expires > UTC_TIMESTAMP(6),
  TIMESTAMPDIFF(MICROSECOND, '2026-01-01', expires)
FROM {table} FORCE INDEX (PRIMARY)
WHERE name IN ({names}) FOR UPDATE SKIP LOCKED
