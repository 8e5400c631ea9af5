-- shape.sql: the columns of the table, for the comparison with schema.sql.
--
-- params   name of the table, twice
-- returns  rows of column, type, key ("PRI": this column is the primary key, or the first
--          column of it), engine; no rows if there is no such table or view
--
-- Each of the two tables gets the database and the name as values. MariaDB opens every table of
-- every database if it has to find them by a join.

SELECT c.COLUMN_NAME, c.COLUMN_TYPE, c.COLUMN_KEY, IFNULL(t.ENGINE, '')
FROM information_schema.TABLES t
JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = ?
WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ?
ORDER BY c.ORDINAL_POSITION
