-- look.sql: whether a lock is held.
--
-- params   name
-- returns  1: it is; 0: it is not, or its term has ended
--
-- A plain SELECT waits for no row, and delays nobody who locks one.

SELECT COUNT(*) FROM {table} WHERE name = ? AND owner <> '' AND expires > UTC_TIMESTAMP(6)
