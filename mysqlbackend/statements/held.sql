-- held.sql: whether a lock is held.
--
-- params   name
-- returns  1 if it is held; 0 if it is free or its term has ended, and if it has a roster, in
--          which the waiter has to enter
--
-- A plain SELECT waits for no row, and does not delay a statement that locks one.

SELECT COUNT(*) FROM {table}
WHERE name = ? AND owner NOT IN ('', '*') AND expires > UTC_TIMESTAMP(6)
