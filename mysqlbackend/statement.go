package mysqlbackend

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

var (
	//go:embed statements/schema.sql
	schemaSQL string
	//go:embed statements/acquire.sql
	acquireSQL string
	//go:embed statements/acquire-all.sql
	acquireAllSQL string
	//go:embed statements/release-all.sql
	releaseAllSQL string
	//go:embed statements/renew.sql
	renewSQL string
	//go:embed statements/renew-free.sql
	renewFreeSQL string
	//go:embed statements/holders.sql
	holdersSQL string
	//go:embed statements/release.sql
	releaseSQL string
	//go:embed statements/handoff.sql
	handOffSQL string
	//go:embed statements/break.sql
	breakSQL string
	//go:embed statements/list.sql
	listSQL string
	//go:embed statements/stale.sql
	staleSQL string
	//go:embed statements/cursor.sql
	cursorSQL string
	//go:embed statements/claim.sql
	claimSQL string
	//go:embed statements/sweep.sql
	sweepSQL string
	//go:embed statements/server.sql
	serverSQL string
	//go:embed statements/logs.sql
	logsSQL string
	//go:embed statements/shape.sql
	shapeSQL string
	//go:embed statements/queue.sql
	queueSQL string
	//go:embed statements/sleep.sql
	sleepSQL string
	//go:embed statements/held.sql
	heldSQL string
	//go:embed statements/locked.sql
	lockedSQL string
	//go:embed statements/roster-read.sql
	rosterReadSQL string
	//go:embed statements/roster-row.sql
	rosterRowSQL string
	//go:embed statements/roster-write.sql
	rosterWriteSQL string
	//go:embed statements/roster-clear.sql
	rosterClearSQL string
	//go:embed statements/turn-sleep.sql
	turnSleepSQL string
	//go:embed statements/roster-take.sql
	rosterTakeSQL string
	//go:embed statements/roster-wait.sql
	rosterWaitSQL string
	//go:embed statements/roster-drop.sql
	rosterDropSQL string
	//go:embed statements/roster-renew.sql
	rosterRenewSQL string
	//go:embed statements/roster-grant.sql
	rosterGrantSQL string
	//go:embed statements/roster-look.sql
	rosterLookSQL string
	//go:embed statements/session-lock.sql
	sessionLockSQL string
	//go:embed statements/session-try.sql
	sessionTrySQL string
	//go:embed statements/session-unlock.sql
	sessionUnlockSQL string
	//go:embed statements/session-prove.sql
	sessionProveSQL string
	//go:embed statements/session-settings.sql
	sessionSettingsSQL string
	//go:embed statements/session-server.sql
	sessionServerSQL string
	//go:embed statements/session-variables.sql
	sessionVariablesSQL string
	//go:embed statements/floor-lock.sql
	floorLockSQL string
	//go:embed statements/floor-unlock.sql
	floorUnlockSQL string
)

// statements are the texts for one table. A statement without {table} is a variable above.
type statements struct {
	schema, acquire, renew, renewFree, holders string
	acquireAll, releaseAll                     string
	release, handOff, breakLock, list          string
	cursor, stale, claim, sweep, sleep         string
	held, locked                               string
	rosterRead, rosterReadFree, rosterRow      string
	rosterWrite, rosterClear, rosterLook       string
	turnSleep, rosterRenew, rosterKeep         string
	rosterWait, rosterGrant                    string
	listPlain                                  string
	dropAny                                    string                 // also among waiters
	takes, drops                               [maxLeaving + 1]string // by the holders that leave
	floorLock, floorUnlock                     string
}

// newStatements returns the statements for a table, each but the schema on one line.
func newStatements(table string) *statements {
	text := func(source string) string {
		return strings.Join(strings.Fields(withTable(source, table)), " ")
	}
	s := &statements{
		schema:  Schema(table),
		acquire: text(acquireSQL), renew: text(renewSQL), renewFree: text(renewFreeSQL),
		acquireAll: text(acquireAllSQL), releaseAll: text(releaseAllSQL),
		holders: text(holdersSQL), release: text(releaseSQL), handOff: text(handOffSQL),
		breakLock: text(breakSQL), stale: text(staleSQL),
		list:           text(strings.ReplaceAll(listSQL, "{roster}", "roster")),
		listPlain:      text(strings.ReplaceAll(listSQL, "{roster}", "NULL")),
		rosterRead:     text(rosterReadSQL),
		rosterReadFree: text(rosterReadSQL) + " SKIP LOCKED",
		rosterRow:      text(rosterRowSQL), rosterWrite: text(rosterWriteSQL),
		rosterClear: text(rosterClearSQL), rosterLook: text(rosterLookSQL),
		turnSleep:   text(turnSleepSQL),
		rosterRenew: withEntry(text(rosterRenewSQL), isHolder),
		rosterKeep:  withEntry(text(rosterRenewSQL), isWaiter),
		rosterGrant: withEntry(text(rosterGrantSQL), isWaiter),
		rosterWait:  withLeaving(text(rosterWaitSQL), 0),
		cursor:      text(cursorSQL), claim: text(claimSQL), sweep: text(sweepSQL),
		sleep: text(sleepSQL), held: text(heldSQL), locked: text(lockedSQL),
		floorLock: text(floorLockSQL), floorUnlock: text(floorUnlockSQL),
	}
	for n := range s.takes {
		s.takes[n] = withLeaving(text(rosterTakeSQL), n)
		s.drops[n] = withLeaving(withWaiters(text(rosterDropSQL), false), n)
	}
	s.dropAny = withLeaving(withWaiters(text(rosterDropSQL), true), 1)
	return s
}

// take returns roster-take.sql for n holders that leave, and drop returns roster-drop.sql.
func (s *statements) take(n int) string { return s.takes[n] }
func (s *statements) drop(n int) string { return s.drops[n] }

// hot returns the statements of a pair of Lock and Unlock, and of the floor. Each connection
// prepares them at their first use. Other statements are too rare to be worth a round trip and
// memory of the server.
func (s *statements) hot() []string {
	return []string{
		s.acquire, s.release, s.handOff, s.floorLock, s.floorUnlock,
		s.takes[0], s.takes[1], s.drops[1],
	}
}

// withTable puts the table's name, quoted, in the place of {table}, and omits the comment.
func withTable(source, table string) string {
	return strings.ReplaceAll(plain(source), "{table}", "`"+table+"`")
}

// plain omits the comment of a statement: a "?" in it would count as a parameter.
func plain(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// withNames puts n parameters in the place of {names}, {owners}, {metas} and {signals}, and n
// triples in the place of {grants}.
func withNames(text string, n int) string {
	each := list("?", n)
	return strings.NewReplacer(
		"{names}", each, "{owners}", each, "{metas}", each, "{signals}", each,
		"{grants}", list("(?, ?, ?)", n),
	).Replace(text)
}

// list returns n items with commas between them.
func list(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

// withMillis returns queue.sql with a limit in ms.
func withMillis(ms int64) string {
	return strings.Replace(plain(queueSQL), "{millis}", strconv.FormatInt(ms, 10), 1)
}

// querier is a *pool, a rowPool, a *sql.DB or a *sql.Conn.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// outcome is the answer to a statement that changes rows: their number, and the insert id. Many
// statements return a result by LAST_INSERT_ID(expr), because it is part of the answer itself.
type outcome struct {
	changed, id int64
}

// isReadOnly reports whether a statement has done nothing because the server is read-only. It then
// returns 1 as the insert id. For acquire.sql see hasNoName.
func isReadOnly(text string, id int64) bool {
	return id == 1 && strings.Contains(text, "@@global.read_only")
}

// exec executes a statement. It returns as soon as ctx ends: the client library then closes the
// connection, but the server may still execute the statement. It waits for a slot of the pool
// first. Without one the statement is not sent, and the error is ErrUnavailable.
func exec(ctx context.Context, q querier, text string, args ...any) (_ outcome, err error) {
	defer rescue(&err, nil)
	q, slot, err := slotFor(ctx, q)
	if err != nil {
		return outcome{}, err
	}
	defer slot.free()
	view := ctx
	if slot != nil {
		view, _ = backend.DeadlineOnly(ctx)
	}
	result, err := q.ExecContext(view, text, args...)
	if err != nil {
		return outcome{}, interpretError(ctx, err)
	}
	changed, errChanged := result.RowsAffected()
	id, errID := result.LastInsertId()
	if isReadOnly(text, id) {
		return outcome{}, errReadOnly
	}
	return outcome{changed, id}, errors.Join(errChanged, errID)
}

// query returns the rows of a statement, each as scan returns it. It returns as soon as ctx ends,
// like exec.
func query[T any](
	ctx context.Context, q querier, scan func(*sql.Rows) (T, error), text string, args ...any,
) (_ []T, err error) {
	defer rescue(&err, nil)
	q, slot, err := slotFor(ctx, q)
	if err != nil {
		return nil, err
	}
	defer slot.free()
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, interpretError(ctx, err)
	}
	defer rows.Close()
	var found []T
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return nil, interpretError(ctx, err)
		}
		found = append(found, row)
	}
	return found, interpretError(ctx, rows.Err())
}
