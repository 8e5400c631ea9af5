package mysqlbackend

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

var (
	//go:embed statements/schema.sql
	schemaSQL string
	//go:embed statements/acquire.sql
	acquireSQL string
	//go:embed statements/renew.sql
	renewSQL string
	//go:embed statements/renew-free.sql
	renewFreeSQL string
	//go:embed statements/holders.sql
	holdersSQL string
	//go:embed statements/release.sql
	releaseSQL string
	//go:embed statements/handover.sql
	handOverSQL string
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
	//go:embed statements/binlog.sql
	binlogSQL string
	//go:embed statements/shape.sql
	shapeSQL string
	//go:embed statements/queue.sql
	queueSQL string
	//go:embed statements/sleep.sql
	sleepSQL string
	//go:embed statements/look.sql
	lookSQL string
	//go:embed statements/floor-lock.sql
	floorLockSQL string
	//go:embed statements/floor-unlock.sql
	floorUnlockSQL string
)

// Schema returns the statement that makes the table, for those who create tables by
// migrations; "" is DefaultTable. It does nothing where the table exists.
func Schema(table string) string {
	return strings.TrimSpace(withTable(schemaSQL, cmp.Or(table, DefaultTable))) + "\n"
}

// statements are the texts for one table.
type statements struct {
	schema, acquire, renew, renewFree, holders string
	release, handOver, breakLock, list         string
	cursor, stale, claim, sweep, sleep, look   string
	floorLock, floorUnlock                     string
}

func newStatements(table string) *statements {
	text := func(source string) string { return strings.Join(strings.Fields(withTable(source, table)), " ") }
	return &statements{
		schema: Schema(table), acquire: text(acquireSQL), renew: text(renewSQL), renewFree: text(renewFreeSQL), holders: text(holdersSQL),
		release: text(releaseSQL), handOver: text(handOverSQL), breakLock: text(breakSQL), list: text(listSQL), stale: text(staleSQL),
		cursor: text(cursorSQL), claim: text(claimSQL), sweep: text(sweepSQL), sleep: text(sleepSQL), look: text(lookSQL),
		floorLock: text(floorLockSQL), floorUnlock: text(floorUnlockSQL),
	}
}

// hot are those that a pair of Lock and Unlock executes, and those of the floor.
func (s *statements) hot() []string {
	return []string{s.acquire, s.release, s.handOver, s.floorLock, s.floorUnlock}
}

// withTable completes a statement and leaves out the comment: a "?" in it would count
// as a parameter.
func withTable(source, table string) string {
	return strings.ReplaceAll(plain(source), "{table}", "`"+table+"`")
}

func plain(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// withNames puts n parameters in the place of {names}, and n pairs in that of {pairs}.
func withNames(text string, n int) string {
	text = strings.Replace(text, "{names}", list("?", n), 1)
	return strings.Replace(text, "{pairs}", list("(?, ?)", n), 1)
}

func list(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

// withMillis is queueSQL with a bound.
func withMillis(ms int64) string {
	return strings.Replace(plain(queueSQL), "{millis}", strconv.FormatInt(ms, 10), 1)
}

// querier is a *pool, a *sql.DB or a *sql.Conn.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// outcome is what a statement that changes rows is answered with.
type outcome struct {
	changed, id int64
}

// isReadOnly reports whether an insert id is the one by which a statement reports that it has done nothing, since the
// server is read-only.
func isReadOnly(text string, id int64) bool {
	return id == 1 && strings.Contains(text, "@@global.read_only")
}

// exec executes a statement. It returns when ctx ends: the client library closes the connection then.
func exec(ctx context.Context, q querier, text string, args ...any) (outcome, error) {
	result, err := q.ExecContext(ctx, text, args...)
	if err != nil {
		return outcome{}, interpretError(ctx, err)
	}
	changed, errChanged := result.RowsAffected()
	id, errID := result.LastInsertId()
	if isReadOnly(text, id) {
		return outcome{}, fmt.Errorf("%w: the server is read-only", backend.ErrUnavailable)
	}
	return outcome{changed, id}, errors.Join(errChanged, errID)
}

// query collects the rows that a statement returns. It returns when ctx ends, as exec does.
func query[T any](
	ctx context.Context, q querier, scan func(*sql.Rows) (T, error), text string, args ...any,
) ([]T, error) {
	if p, ok := q.(*pool); ok {
		if err := p.enter(ctx); err != nil {
			return nil, err
		}
		defer p.leave()
	}
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
