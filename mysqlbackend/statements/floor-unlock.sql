-- floor-unlock.sql: the minimum that can unlock the row again.
--
-- params   name, owner

UPDATE {table} SET owner = '' WHERE name = ? AND owner = ?
