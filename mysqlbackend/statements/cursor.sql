-- cursor.sql: the name at which the next sweep begins.
--
-- params   name of the cursor's row
-- returns  rows of meta, which is that name; none before the first sweep

SELECT meta FROM {table} WHERE name = ?
