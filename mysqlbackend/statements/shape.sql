-- shape.sql: the columns of the table, for the comparison with schema.sql.
--
-- params   name of the table, three times
-- returns  rows of column, type, key ("PRI": this column is the primary key, or the first
--          column of it; "part": a unique index has a part of a column, or an expression, so
--          that two names could share a row), engine; no rows if there is no such table or view
--
-- Each of the three tables gets the database and the name as values. MariaDB opens every table of
-- every database if it has to find them by a join.

SELECT c.COLUMN_NAME, c.COLUMN_TYPE,
  IF(EXISTS (
    SELECT 1 FROM information_schema.STATISTICS s
    WHERE s.TABLE_SCHEMA = DATABASE() AND s.TABLE_NAME = ? AND s.NON_UNIQUE = 0
      AND (s.SUB_PART IS NOT NULL OR s.COLUMN_NAME IS NULL)
  ), 'part', c.COLUMN_KEY),
  IFNULL(t.ENGINE, '')
FROM information_schema.TABLES t
JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = ?
WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = ?
ORDER BY c.ORDINAL_POSITION
