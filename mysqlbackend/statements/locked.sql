-- locked.sql: whether another statement has locked the row of a name.
--
-- params   name
-- returns  an error if the row is locked: 3572 on MySQL, 1205 on MariaDB
--
-- It waits for no row. The row is not locked after it.

SELECT 1 FROM {table} FORCE INDEX (PRIMARY) WHERE name = ? FOR UPDATE NOWAIT
