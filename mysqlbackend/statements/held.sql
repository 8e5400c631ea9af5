-- held.sql: whether a lock is held.
--
-- params   name
-- returns  1 if it is held; 0 if it is free or its term has ended, and if it has a roster, in
--          which the waiter has to enter; whether the server is read-only: then the waiter leaves
--
-- A plain SELECT waits for no row, and does not delay a statement that locks one.

SELECT COUNT(*), CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only
FROM {table}
WHERE name = ? AND owner NOT IN ('', '*') AND expires > UTC_TIMESTAMP(6)
