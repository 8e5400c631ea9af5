-- roster-write.sql: a new roster, if the row is still as roster-read.sql returned it.
--
-- params   token, since and expires in µs since 1970, roster; name, and owner, token, expires as
--          they were; 1 if a read-only server may execute it, too
-- returns  as the number of changed rows: 0 if another client has changed the row meanwhile, or
--          the server is read-only
--
-- Each write raises the token. So no statement that is late finds the row as it was, and the
-- token is the fence of a grant that the write makes.

UPDATE {table}
SET
  owner = '*', token = ?, meta = '',
  since = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND,
  expires = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND,
  roster = ?
WHERE name = ? AND owner = ? AND token = ?
  AND expires = TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND (? OR CONCAT(@@global.read_only) IN ('0', 'OFF'))
