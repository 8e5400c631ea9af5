package pgbackend

import (
	"cmp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the statements of a driver, with the name of its table. Each commits by itself, so
// that no row stays locked between two of them.
//
// Times are clock_timestamp(): now() is the beginning of the transaction, and would be from before
// a wait for the lock of the row. If a statement has waited for another statement that changed the
// row, PostgreSQL evaluates the condition and the new values again for the changed row, because the
// isolation level is READ COMMITTED. If the other statement has only locked the row, the values
// from before the wait count: a term then ends a little earlier, but not before the TTL after its
// request.
//
// The queries of WITH have names with a $, which no table of locks has: such a name would hide the
// table in the rest of the statement.
type statements struct {
	read, take, takeAll, insert, update, updateWaking string
	updateSkipping, updateWakingSkipping              string
	updateBounded, updateWakingBounded, updateFast    string
	renew, renewAll, free, freeAll, settle, storeAll  string
	list, readAll, swap, insist                       string
	sweepPage, sweepNames, floorLock, floorUnlock     string
}

// newStatements returns the statements for a table, whose name is an identifier of SQL.
func newStatements(table string) statements {
	with := func(s string) string { return strings.ReplaceAll(s, "TABLE", table) }
	return statements{
		read: with(readSQL), take: with(takeSQL), takeAll: with(takeAllSQL),
		insert: with(insertSQL), update: with(updateSQL),
		updateWaking:         with(waking(updateSQL, "$13")),
		updateSkipping:       with(updateSkippingSQL),
		updateWakingSkipping: with(waking(updateSkippingSQL, "$13")),
		updateBounded:        with(updateBoundedSQL),
		updateWakingBounded:  with(waking(updateBoundedSQL, "$14")),
		updateFast:           with(updateFastSQL),
		renew:                with(renewSQL), renewAll: with(renewAllSQL),
		free: with(freeSQL), freeAll: with(freeAllSQL), settle: with(settleSQL),
		swap: with(swapSQL), insist: with(insistSQL),
		storeAll: with(storeAllSQL), list: with(listSQL), readAll: with(readAllSQL),
		sweepPage: with(sweepPageSQL), sweepNames: with(sweepNamesSQL),
		floorLock: with(floorLockSQL), floorUnlock: with(floorUnlockSQL),
	}
}

// Schema returns the statement that creates the table, for applications with migrations. An empty
// table name is DefaultTable. The statement has no effect if the table exists.
//
// Only name has an index, and half of each page is left free, so that changes of a row stay in its
// page and do not touch the index.
func Schema(table string) string {
	return schema(quoted(cmp.Or(table, DefaultTable)))
}

// schema is Schema for the name of a table that is an identifier of SQL.
func schema(table string) string {
	return "CREATE TABLE IF NOT EXISTS " + table + ` (
	name    bytea PRIMARY KEY,
	version bigint NOT NULL,
	fence   bigint NOT NULL,
	owner   text NOT NULL,
	meta    bytea NOT NULL,
	since   timestamptz NOT NULL,
	expires timestamptz NOT NULL,
	roster  bytea
) WITH (fillfactor = 50)`
}

// quoted returns the name of a table as an identifier of SQL.
func quoted(table string) string {
	return pgx.Identifier(strings.Split(table, ".")).Sanitize()
}

// readSQL returns one row, also for a name that has none.
const readSQL = `SELECT ` + columns + ` FROM (SELECT) AS one LEFT JOIN TABLE AS l ON l.name = $1`

// takeSQL takes a lock that is free or has expired, or prolongs the grant of the same owner. It
// returns the fence. It does not lock the row of a held lock.
const takeSQL = `UPDATE TABLE SET
	version = version + 1,
	fence = CASE WHEN owner = $2 THEN fence ELSE fence + 1 END,
	owner = $2, meta = $3,
	since = CASE WHEN owner = $2 THEN since ELSE clock_timestamp() END,
	expires = CASE WHEN owner = $2
		THEN greatest(expires, clock_timestamp() + $4::bigint * interval '1 microsecond')
		ELSE clock_timestamp() + $4::bigint * interval '1 microsecond' END
WHERE name = $1 AND roster IS NULL
	AND (owner = $2 OR owner = '' OR expires <= clock_timestamp())
RETURNING fence`

// takeAllSQL is takeSQL for many names, and returns their positions, from 1, and the fences. It
// also makes the rows of names that had none, in the order of the names. That comes first, because
// it can wait for a row that another statement makes: so it has no other rows locked meanwhile, and
// no deadlock is possible. Rows that are locked are skipped. If a name is there twice, one of both
// takes the lock. $5 is the epoch of fences.
const takeAllSQL = `WITH wanted$ AS (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bigint[])
		WITH ORDINALITY AS a (name, owner, meta, ttl, position)
), locked$ AS (
	SELECT l.name, a.owner, a.meta, a.ttl, a.position
	FROM wanted$ AS a JOIN TABLE AS l ON l.name = a.name
	WHERE l.roster IS NULL
		AND (l.owner = a.owner OR l.owner = '' OR l.expires <= clock_timestamp())
	FOR NO KEY UPDATE OF l SKIP LOCKED
), taken$ AS (
	UPDATE TABLE AS l SET
		version = l.version + 1,
		fence = CASE WHEN l.owner = k.owner THEN l.fence ELSE l.fence + 1 END,
		owner = k.owner, meta = k.meta,
		since = CASE WHEN l.owner = k.owner THEN l.since ELSE clock_timestamp() END,
		expires = CASE WHEN l.owner = k.owner
			THEN greatest(l.expires, clock_timestamp() + k.ttl * interval '1 microsecond')
			ELSE clock_timestamp() + k.ttl * interval '1 microsecond' END
	FROM locked$ AS k
	WHERE l.name = k.name AND l.roster IS NULL
		AND (l.owner = k.owner OR l.owner = '' OR l.expires <= clock_timestamp())
	RETURNING k.position, l.fence
), made$ AS (
	INSERT INTO TABLE (name, version, fence, owner, meta, since, expires)
	SELECT a.name, n.fence, n.fence, a.owner, a.meta,
		clock_timestamp(), clock_timestamp() + a.ttl * interval '1 microsecond'
	FROM wanted$ AS a, (SELECT 1 + greatest(1,
		(extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $5::bigint)) AS n (fence)
	WHERE NOT EXISTS (SELECT FROM TABLE AS l WHERE l.name = a.name)
	ORDER BY a.name
	ON CONFLICT (name) DO NOTHING
	RETURNING name, owner, fence
)
SELECT a.position, m.fence
FROM made$ AS m JOIN wanted$ AS a ON a.name = m.name AND a.owner = m.owner
UNION ALL
SELECT position, fence FROM taken$`

// insertSQL makes the row of a name that had none.
const insertSQL = `INSERT INTO TABLE (name, version, fence, owner, meta, since, expires, roster)
VALUES ($1, $2::bigint + 1, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO NOTHING
RETURNING version`

// isUnchanged is the condition for a row that is as it was read. The version alone is not enough:
// after a failover a pool can have connections to the new primary and to a former one that lives
// on. Both give the same version to different changes. Versions of one name do not repeat after the
// row was deleted, by the same rule as fences: a new row begins with the server's time.
const isUnchanged = `version = $2 AND fence = $9 AND owner = $10 AND expires = $11
	AND sha256(roster) IS NOT DISTINCT FROM $12`

// changeSQL changes a row. Each statement that uses it adds the condition.
const changeSQL = `UPDATE TABLE SET
	version = version + 1,
	fence = $3, owner = $4, meta = $5, since = $6, expires = $7, roster = $8`

// updateSQL changes a row that has not changed since it was read.
const updateSQL = changeSQL + `
WHERE name = $1 AND ` + isUnchanged + `
RETURNING version`

// updateSkippingSQL is updateSQL, and changes nothing if the row is locked.
const updateSkippingSQL = changeSQL + `
WHERE ` + isUnchanged + ` AND name = (
	SELECT name FROM TABLE WHERE name = $1 AND version = $2 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING version`

// updateBoundedSQL is updateSQL, and waits for a locked row for $13 milliseconds at most. Then it
// fails, and the connection stays. The row is locked after the limit is set, because the row needs
// one of bound$ to be changed.
const updateBoundedSQL = `WITH bound$ AS MATERIALIZED (
	SELECT set_config('lock_timeout', $13, true)
)
` + changeSQL + `
FROM bound$
WHERE name = $1 AND ` + isUnchanged + `
RETURNING version`

// swapSQL removes the holders with the owners $2 from a roster, and adds the holder $3, with the
// owner $4 and the term $5, unless $3 is NULL. The other entries must be holders, less than $7 of
// them and of the kind $6. It returns the last fence. It waits for a row that is locked, and then
// changes the row as it is by then. While the time since of the row is in the future, it changes
// nothing: see insistSQL. A change that it does not make is left to an edition that reads the row.
const swapSQL = `UPDATE TABLE AS l SET
	version = version + 1,
	fence = fence + CASE WHEN $3::text IS NULL THEN 0 ELSE 1 END,
	expires = greatest(expires, clock_timestamp() + $5::bigint * interval '1 microsecond'),
	roster = convert_to(((
		SELECT coalesce(jsonb_agg(e ORDER BY i)
			FILTER (WHERE e->>'owner' <> ALL ($2::text[])), '[]')
		FROM jsonb_array_elements(convert_from(l.roster, 'UTF8')::jsonb)
			WITH ORDINALITY AS a (e, i)
	) || CASE WHEN $3::text IS NULL THEN '[]' ELSE jsonb_build_array(
		$3::text::jsonb || jsonb_build_object('fence', fence + 1,
			'since', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
			'expires', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $5::bigint)
	) END)::text, 'UTF8')
WHERE name = $1 AND roster IS NOT NULL AND since <= clock_timestamp() AND (
	SELECT count(*) FILTER (WHERE e->>'owner' = ANY ($2::text[])) = cardinality($2::text[])
		AND count(*) - cardinality($2::text[])
			BETWEEN CASE WHEN $3::text IS NULL THEN 1 ELSE 0 END AND $7::bigint - 1
		AND bool_and(e ? 'granted' AND e->>'owner' <> $4::text
			AND ($3::text IS NULL OR e->>'kind' = $6::text)
			AND (e->>'expires')::bigint > extract(epoch FROM clock_timestamp()) * 1000000)
	FROM jsonb_array_elements(convert_from(l.roster, 'UTF8')::jsonb) AS a (e))
RETURNING fence`

// insistSQL makes swapSQL change nothing of a roster for the time $2. The version stays, so clients
// that have read the row can still store it.
const insistSQL = `UPDATE TABLE SET
	since = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE name = $1 AND roster IS NOT NULL
RETURNING version`

// updateFastSQL is updateSQL, and waits neither for the disk nor for a standby. A crash of the
// server can forget the change, so no grant may depend on it.
const updateFastSQL = `WITH fast$ AS MATERIALIZED (
	SELECT set_config('synchronous_commit', 'off', true)
)
` + changeSQL + `
FROM fast$
WHERE name = $1 AND ` + isUnchanged + `
RETURNING version`

// waking returns an update that also wakes the waiters with the owners in the parameter.
func waking(update, parameter string) string {
	return `WITH updated$ AS (` + update + `)
SELECT version FROM (
	SELECT version, pg_notify('` + channel + `', woken)
	FROM updated$, unnest(` + parameter + `::text[]) AS woken
) AS sent`
}

// renewSQL prolongs a term. It never creates a grant. With the fence it proves that the grant is
// not another one of the same owner, which a late request made after a break. It skips a row that
// is locked, because it would wait in one of the few slots of all renewals.
const renewSQL = `UPDATE TABLE SET
	version = version + 1,
	expires = greatest(expires, clock_timestamp() + $3::bigint * interval '1 microsecond')
WHERE owner = $2 AND ($4::bigint = 0 OR fence = $4) AND roster IS NULL AND name = (
	SELECT name FROM TABLE WHERE name = $1 AND owner = $2 FOR NO KEY UPDATE SKIP LOCKED)
RETURNING version`

// renewAllSQL prolongs many terms and returns their positions, from 1, and the new versions. It
// skips rows that are locked and grants that are gone or in a roster. So it never waits, and two of
// them cannot deadlock.
const renewAllSQL = `WITH asked$ AS (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[], $4::bigint[])
		WITH ORDINALITY AS a (name, owner, ttl, fence, position)
), locked$ AS (
	SELECT l.name, l.owner, a.ttl, a.position
	FROM asked$ AS a JOIN TABLE AS l ON l.name = a.name AND l.owner = a.owner
	WHERE (a.fence = 0 OR a.fence = l.fence) AND l.roster IS NULL
	FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE TABLE AS l SET
	version = version + 1,
	expires = greatest(l.expires, clock_timestamp() + k.ttl * interval '1 microsecond')
FROM locked$ AS k
WHERE l.name = k.name AND l.owner = k.owner AND l.roster IS NULL
RETURNING k.position, l.version`

// freeSQL releases a lock without waiters. It keeps the row for its fence.
const freeSQL = `UPDATE TABLE SET
	version = version + 1, owner = '', meta = '', expires = clock_timestamp()
WHERE name = $1 AND owner = $2 AND roster IS NULL
RETURNING version`

// freeAllSQL is freeSQL for many names, and returns their positions, from 1, and the new versions.
// It skips rows that are locked. So it never waits, and two of them cannot deadlock.
const freeAllSQL = `WITH held$ AS (
	SELECT * FROM unnest($1::bytea[], $2::text[]) WITH ORDINALITY AS a (name, owner, position)
), locked$ AS (
	SELECT l.name, l.owner, a.position
	FROM held$ AS a JOIN TABLE AS l ON l.name = a.name AND l.owner = a.owner
	WHERE l.roster IS NULL
	FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE TABLE AS l SET
	version = version + 1, owner = '', meta = '', expires = clock_timestamp()
FROM locked$ AS k
WHERE l.name = k.name AND l.owner = k.owner AND l.roster IS NULL
RETURNING k.position, l.version`

// settleSQL waits until the rows of the names $1 have no change that is not committed. Such a
// change has left its transaction in xmax, but the commit can wait for a standby for any time, and
// a new row cannot be seen before. So a name without a row gets a free one, which would conflict
// with it. $2 is the epoch of fences. The statement changes nothing that must last, and so its own
// commit waits neither for the disk nor for a standby. It locks rows in the order of their names.
const settleSQL = `WITH fast$ AS MATERIALIZED (
	SELECT set_config('synchronous_commit', 'off', true)
), unsettled$ AS MATERIALIZED (
	SELECT a.name, clock_timestamp() AS now, greatest(1,
		(extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $2::bigint) AS fence
	FROM unnest($1::bytea[]) AS a (name)
	WHERE NOT EXISTS (SELECT FROM TABLE AS l WHERE l.name = a.name AND l.xmax = 0)
)
INSERT INTO TABLE AS l (name, version, fence, owner, meta, since, expires)
SELECT u.name, u.fence, u.fence, '', ''::bytea, u.now, u.now FROM unsettled$ AS u, fast$
ORDER BY u.name
ON CONFLICT (name) DO UPDATE SET version = l.version WHERE false`

// storeAllSQL changes rows that have not changed since they were read, see isUnchanged: all of
// them, or none. It returns the number of changed rows. It locks rows in the order of their names,
// so two of them cannot deadlock.
const storeAllSQL = `WITH next$ AS (
	SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::text[], $5::bytea[],
		$6::timestamptz[], $7::timestamptz[], $8::bytea[],
		$9::bigint[], $10::text[], $11::timestamptz[], $12::bytea[])
		AS n (name, version, fence, owner, meta, since, expires, roster,
			read_fence, read_owner, read_expires, read_roster)
), locked$ AS MATERIALIZED (
	SELECT n.* FROM next$ AS n JOIN TABLE AS l ON l.name = n.name AND l.version = n.version
		AND l.fence = n.read_fence AND l.owner = n.read_owner AND l.expires = n.read_expires
		AND sha256(l.roster) IS NOT DISTINCT FROM n.read_roster
	ORDER BY l.name FOR NO KEY UPDATE OF l
), stored$ AS (
	UPDATE TABLE AS l SET
		version = l.version + 1, fence = k.fence, owner = k.owner, meta = k.meta,
		since = k.since, expires = k.expires, roster = k.roster
	FROM locked$ AS k
	WHERE l.name = k.name AND (SELECT count(*) FROM locked$) = cardinality($1::bytea[])
	RETURNING l.version
)
SELECT count(*) FROM stored$`

// listSQL returns the rows that are held or waited for, of the first $3 rows from $1 on, up to $2.
// Each follows the last of these $3 names, which is NULL if there are fewer. If all rows are free,
// there is one row without a name of its own. Only one bound is in the search for the page: with
// two of them, the server would sort all rows of a table that has no statistics yet.
const listSQL = `WITH page$ AS MATERIALIZED (
	SELECT * FROM TABLE WHERE name >= $1 ORDER BY name LIMIT $3
)
SELECT (SELECT name FROM page$ ORDER BY name OFFSET $3 - 1), l.name, ` + shortColumns + `
FROM (SELECT) AS one$ LEFT JOIN page$ AS l ON l.name < $2
	AND (l.roster IS NOT NULL OR l.owner <> '') AND l.expires > clock_timestamp()
ORDER BY l.name`

// readAllSQL is readSQL for many names, without those that have no row. If none has a row, there is
// one row without a name.
const readAllSQL = `SELECT l.name, ` + shortColumns + `
FROM (SELECT) AS one$ LEFT JOIN TABLE AS l ON l.name = ANY($1::bytea[])`

// isFree is the condition for a row that no owner has: its time is when it became free.
const isFree = `(owner = '' AND roster IS NULL OR expires <= clock_timestamp())`

// sweepPageSQL deletes the rows of the next $2 names that have been free for $3 microseconds, and
// reports whether these were the last names. The row $1 has the name before them, and gets the last
// one of them, or nothing after the last name. The row does not exist before the first page that
// is full. If another sweep has locked it, the statement does nothing. Otherwise it locks only the
// rows that it deletes.
const sweepPageSQL = `WITH cursor$ AS MATERIALIZED (
	SELECT meta AS name FROM TABLE WHERE name = $1 FOR NO KEY UPDATE SKIP LOCKED
), begin$ AS MATERIALIZED (
	SELECT name FROM cursor$
	UNION ALL SELECT ''::bytea WHERE NOT EXISTS (SELECT FROM TABLE WHERE name = $1)
), page$ AS MATERIALIZED (
	SELECT name, expires FROM TABLE WHERE name > (SELECT name FROM begin$) AND name <> $1
	ORDER BY name LIMIT $2
), last$ AS MATERIALIZED (
	SELECT CASE WHEN count(*) < $2 THEN '' ELSE (SELECT name FROM page$ ORDER BY name DESC LIMIT 1)
		END AS name
	FROM page$
), moved$ AS (
	INSERT INTO TABLE AS l (name, version, fence, owner, meta, since, expires)
	SELECT $1, 1, 1, '', e.name, clock_timestamp(), clock_timestamp()
	FROM begin$ AS b, last$ AS e WHERE b.name <> e.name
	ON CONFLICT (name) DO UPDATE SET
		version = l.version + 1, meta = excluded.meta, expires = excluded.expires
), stale$ AS (
	SELECT name FROM TABLE
	WHERE name = ANY (ARRAY(
			SELECT name FROM page$
			WHERE expires <= clock_timestamp() - $3::bigint * interval '1 microsecond'))
		AND expires <= clock_timestamp() - $3::bigint * interval '1 microsecond'
	FOR UPDATE SKIP LOCKED
), deleted$ AS (
	DELETE FROM TABLE AS l USING stale$ AS s WHERE l.name = s.name
)
SELECT EXISTS (SELECT FROM begin$) AND (SELECT count(*) FROM page$) < $2`

// sweepNamesSQL deletes the rows of free names.
const sweepNamesSQL = `DELETE FROM TABLE WHERE name = ANY($1::bytea[]) AND ` + isFree

// The fewest statements that lock and unlock.
const (
	floorLockSQL = `INSERT INTO TABLE AS l (name, version, fence, owner, meta, since, expires)
VALUES ($1, 1, 1, $2, '', clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE SET owner = $2 WHERE l.owner = ''`
	floorUnlockSQL = `UPDATE TABLE SET owner = '' WHERE name = $1 AND owner = $2`
)

// probeSQL returns whether the table $1 does not exist, and whether the server waits for its disk.
// It also returns the schema of the table, or the one in which it would be created, and whether
// that is the user's own by $user in search_path. It is NULL if search_path has no schema.
const probeSQL = `SELECT missing, durable, schema,
	coalesce(schema = current_user AND current_setting('search_path') LIKE '%$user%', false)
FROM (SELECT to_regclass($1) IS NULL AS missing, current_setting('fsync') = 'on' AS durable,
	coalesce((SELECT nspname FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
		WHERE pg_class.oid = to_regclass($1)), current_schema()) AS schema) AS probed`

// shapeSQL returns the columns of the table $1, whether ON CONFLICT (name) has an index that keeps
// names unique, whether the table is written to the log of the server, and whether the user may
// change it. A deferrable index prevents ON CONFLICT even if there is another one.
const shapeSQL = `SELECT
	(SELECT string_agg(attname || ' ' || replace(format_type(atttypid, atttypmod), '"', ''), ', '
			ORDER BY attname) -- quote_all_identifiers quotes the types
		FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
	(SELECT coalesce(bool_and(indimmediate), false)
		FROM pg_index JOIN pg_attribute ON attrelid = c.oid AND attnum = indkey[0]
		WHERE indrelid = c.oid AND indisunique AND indisvalid
			AND indpred IS NULL AND indnkeyatts = 1 AND attname = 'name'),
	relpersistence = 'p',
	has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
		AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')
FROM pg_class AS c WHERE c.oid = to_regclass($1)`

// shape is what shapeSQL returns for a table of Schema.
const shape = "expires timestamp with time zone, fence bigint, meta bytea, name bytea, " +
	"owner text, roster bytea, since timestamp with time zone, version bigint"

// countSQL returns the number of connections.
const countSQL = `SELECT sum(numbackends)::bigint FROM pg_stat_database`
