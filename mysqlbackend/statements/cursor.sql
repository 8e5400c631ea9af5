-- cursor.sql: the name at which the next sweep begins.
--
-- params   name of the cursor's row
-- returns  rows of meta, which contains that name; no rows before the first sweep

SELECT meta FROM {table} WHERE name = ?
