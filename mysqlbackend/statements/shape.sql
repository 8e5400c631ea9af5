-- shape.sql: the columns of the table, to be compared with those of schema.sql.
--
-- params   name of the table
-- returns  rows of column, type, key ("PRI": this column alone is the primary key or is
--          the first of it), engine; none where there is no such table or view

SELECT c.COLUMN_NAME, c.COLUMN_TYPE, c.COLUMN_KEY, IFNULL(t.ENGINE, '')
FROM information_schema.TABLES t
JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ?
ORDER BY c.ORDINAL_POSITION
