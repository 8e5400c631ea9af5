package mysqlbackend

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
)

// TestStatements runs single statements and compares their answers and the rows that they leave.
// SET TIMESTAMP stops the clock of the connection, so results are exact to the microsecond.

const (
	clock    = "1800000000.005007" // Unix time
	newToken = 32774400005007      // the time of clock, in µs since 2026
	second   = 1_000_000           // µs
	minute   = 60 * second
	busy     = busyFlag
)

// entry is a row of the table. Times are in µs after clock.
type entry struct {
	name, owner    string
	token          int64
	since, expires int64
	meta           string
}

// stage is a table with a connection whose clock stands still, and with another connection.
type stage struct {
	testing.TB
	text  *statements
	conn  *sql.Conn
	other *sql.Conn
}

// statementTest is one execution of a statement.
type statementTest struct {
	name   string
	before []entry
	text   string
	args   []any
	want   outcome
	after  []entry // nil means no change
}

func TestStatements(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := database(t, server(t), "?interpolateParams=true")
			s := &stage{
				text:  newStatements("stage"),
				conn:  oneConnection(t, db),
				other: oneConnection(t, db),
			}
			do(t, s.conn, s.text.schema)
			do(t, s.conn, newStatements("stage2").schema) // no statement may read or change it
			do(t, s.conn, "SET TIMESTAMP = "+clock)
			for part, test := range map[string]func(s *stage){
				"acquire": testAcquire, "release": testRelease, "break": testBreak,
				"hand-off": testHandoff, "renew": testRenew, "renew many": testRenewMany,
				"sweep": testSweep, "list": testList, "look": testLook, "shape": testShape,
				"roster": testRoster, "roster reads": testRosterReads,
				"roster waiters": testRosterWait,
				"roster grants":  testRosterGrant,
			} {
				t.Run(part, func(t *testing.T) {
					s.TB = t
					test(s)
				})
			}
		})
	}
}

func oneConnection(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// set replaces the rows of the table.
func (s *stage) set(rows []entry) {
	s.Helper()
	do(s, s.conn, "DELETE FROM stage")
	for _, r := range rows {
		do(s, s.conn, "INSERT INTO stage (name, owner, token, since, expires, meta) "+
			"VALUES (?, ?, ?, "+
			"UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, "+
			"UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?)",
			[]byte(r.name), []byte(r.owner), r.token, r.since, r.expires, []byte(r.meta))
	}
}

// get returns all rows.
func (s *stage) get() []entry {
	s.Helper()
	rows, err := query(s.Context(), s.conn, func(rows *sql.Rows) (r entry, err error) {
		return r, rows.Scan(&r.name, &r.owner, &r.token, &r.since, &r.expires, &r.meta)
	}, "SELECT name, owner, token, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), since), "+
		"TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires), meta FROM stage ORDER BY name")
	if err != nil {
		s.Fatal(err)
	}
	return rows
}

// rows returns the result of a query, one line per row.
func (s *stage) rows(text string, args ...any) string {
	s.Helper()
	rows, err := query(s.Context(), s.conn, func(rows *sql.Rows) (string, error) {
		columns, err := rows.Columns()
		if err != nil {
			return "", err
		}
		values, pointers := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			pointers[i] = &values[i]
		}
		err = rows.Scan(pointers...)
		var line []string
		for _, v := range values {
			line = append(line, v.String)
		}
		return strings.Join(line, " "), err
	}, text, args...)
	if err != nil {
		s.Errorf("%s: %v", text, err)
	}
	return strings.Join(rows, "\n")
}

// wantRows checks the result of a query.
func (s *stage) wantRows(want, text string, args ...any) {
	s.Helper()
	if got := s.rows(text, args...); got != want {
		s.Errorf("%.30s %s: read\n%s, want\n%s", text, args, got, want)
	}
}

func (s *stage) run(tests []statementTest) {
	s.Helper()
	for _, tt := range tests {
		s.set(tt.before)
		got, err := exec(s.Context(), s.conn, tt.text, tt.args...)
		if err != nil || got != tt.want {
			s.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
		if tt.after == nil {
			tt.after = tt.before
		}
		if got := s.get(); !slices.Equal(got, tt.after) {
			s.Errorf("%s: the rows are\n%+v, want\n%+v", tt.name, got, tt.after)
		}
	}
}

func testAcquire(s *stage) {
	const ttl = 30 * second
	req := &backend.Request{Key: "n", Owner: "a", Meta: "meta of a"}
	granted := func(token int64) []entry { return []entry{{"n", "a", token, 0, ttl, "meta of a"}} }
	row := func(owner string, token, since, expires int64) []entry {
		return []entry{{"n", owner, token, since, expires, "meta of " + owner}}
	}
	tests := []statementTest{
		{name: "a new name", want: outcome{1, newToken}, after: granted(newToken)},
		{
			name: "a lock with 1 µs left", before: row("b", 1, -second, 1),
			want: outcome{0, busy + 1},
		},
		{
			name: "a lock that ends now", before: row("b", 1, -second, 0),
			want: outcome{2, newToken}, after: granted(newToken),
		},
		{
			name: "a long lock", before: row("b", 1, -second, 2*minute),
			want: outcome{0, busy + 2*minute},
		},
		{
			name: "the owner's lock", before: row("a", 7, -second, second),
			want: outcome{2, 7}, after: granted(7),
		},
		{
			name:   "the owner's lock, with a longer term",
			before: row("a", newToken, -second, minute),
			want:   outcome{2, newToken}, after: row("a", newToken, 0, minute),
		},
		{
			name: "the owner's lock, which ends now", before: row("a", 1, -second, 0),
			want: outcome{2, newToken}, after: granted(newToken),
		},
		{
			name: "a fence ahead of the clock", before: row("", newToken+100, -minute, -second),
			want: outcome{2, newToken + 101}, after: granted(newToken + 101),
		},
		{
			name: "a roster", before: row("*", 1, 0, second),
			want: outcome{0, busy + rosterFlag + second},
		},
		{
			name: "a roster that ends now", before: row("*", 1, 0, 0),
			want: outcome{2, newToken}, after: granted(newToken),
		},
		{name: "a kept lock", before: row("", 1, 0, second), want: outcome{0, busy}},
		{
			name: "a lock that is kept for 1 min", before: row("", 1, 0, minute),
			want: outcome{0, busy},
		},
		{
			name: "a lock that is kept for more than 1 min", before: row("", 1, 0, minute+1),
			want: outcome{2, newToken}, after: granted(newToken),
		},
	}
	for i := range tests {
		if tests[i].after != nil {
			tests[i].after[0].meta = req.Meta
		}
		tests[i].text, tests[i].args = s.text.acquire, acquireArgs(req, ttl, false)
	}
	s.run(append(tests, statementTest{
		name:   "a kept lock by the first waiter",
		before: row("", 1, 0, second), text: s.text.acquire,
		args: acquireArgs(req, ttl, true), want: outcome{2, newToken}, after: granted(newToken),
	}, statementTest{
		name:   "a lock that is kept since a later time",
		before: row("", 1, 1, second), text: s.text.acquire,
		args: acquireArgs(req, ttl, true), want: outcome{0, busy},
	}, statementTest{
		name:   "a held lock by the first waiter",
		before: row("b", 1, 0, second), text: s.text.acquire,
		args: acquireArgs(req, ttl, true), want: outcome{0, busy + second},
	}))
}

// three are locks of two owners.
var three = []entry{
	{"m", "a", 1, -second, second, "m"},
	{"n", "a", 2, -second, second, "n"},
	{"o", "b", 3, -second, second, "o"},
}

// changed returns three with n in place of the second entry.
func changed(n entry) []entry { return []entry{three[0], n, three[2]} }

// waits makes the other connection the first waiter: it has the signal until the test ends. It
// returns the id of that connection.
func (s *stage) waits(signal string) (connection int64) {
	s.Helper()
	wantGranted(s, s.other, signal)
	s.Cleanup(func() { ask(s, s.other, "SELECT RELEASE_ALL_LOCKS()") })
	_, _ = fmt.Sscan(ask(s, s.other, "SELECT CONNECTION_ID()"), &connection)
	return connection
}

func wantGranted(tb testing.TB, q querier, signal string) {
	tb.Helper()
	if got := ask(tb, q, "SELECT GET_LOCK(?, 30)", signal); got != "1" {
		tb.Fatalf("GET_LOCK: %s", got)
	}
}

// testRemoval tests a release or a break. args are the parameters after the name.
func testRemoval(s *stage, text string, args ...any) {
	const signal, kept = "dlock stage", 50_000
	args = append([]any{signal, kept, []byte("n")}, args...)
	free := changed(entry{"n", "", 2, 0, 0, "n"})
	ended := changed(entry{"n", "a", 2, -second, 0, "n"})
	another := changed(entry{"n", "c", 2, -second, second, "n"})
	tests := []statementTest{
		{name: "a lock", before: three, want: outcome{1, 0}, after: free},
		{name: "a lock that ends now", before: ended},
		{name: "another owner's lock", before: another},
		{name: "a kept lock", before: changed(entry{"n", "", 2, -second, second, "n"})},
		{name: "an unknown name", before: []entry{three[0], three[2]}},
	}
	for i := range tests {
		tests[i].text, tests[i].args = text, args
	}
	s.run(tests)
	s.run([]statementTest{{
		name: "a lock with a waiter", before: three, text: text, args: args,
		want: outcome{1, s.waits(signal)}, after: changed(entry{"n", "", 2, 0, kept, "n"}),
	}})
}

func testRelease(s *stage) { testRemoval(s, s.text.release, []byte("a")) }

func testBreak(s *stage) {
	testRemoval(s, s.text.breakLock, []byte("a"), []byte("a"))
	ask(s, s.other, "SELECT RELEASE_ALL_LOCKS()")
	args := []any{"dlock stage", 50_000, []byte("n"), []byte(""), []byte("")}
	s.run([]statementTest{
		{
			name: "any holder", before: three, text: s.text.breakLock, args: args,
			want: outcome{1, 0}, after: changed(entry{"n", "", 2, 0, 0, "n"}),
		},
		{
			name: "a kept lock", before: changed(entry{"n", "", 2, -second, second, "n"}),
			text: s.text.breakLock, args: args,
		},
		{
			name: "a roster", before: changed(entry{"n", "*", 2, -second, second, "n"}),
			text: s.text.breakLock, args: args,
		},
	})
}

func testHandoff(s *stage) {
	const signal, kept = "dlock stage", 50_000
	args := []any{signal, signal, kept, []byte("n"), []byte("a")}
	wantGranted(s, s.conn, signal)
	defer func() { ask(s, s.conn, "SELECT RELEASE_ALL_LOCKS()") }()
	ended, another := entry{"n", "a", 2, -second, 0, "n"}, entry{"n", "c", 2, -second, second, "n"}
	s.run([]statementTest{
		{name: "a lock that ends now", before: changed(ended), text: s.text.handOff, args: args},
		{name: "another owner's lock", before: changed(another), text: s.text.handOff, args: args},
	})
	if ask(s, s.other, "SELECT IS_FREE_LOCK(?)", signal) != "0" {
		s.Error("the signal was given away with a lock that was not held")
	}
	s.run([]statementTest{{
		name: "a lock", before: three, text: s.text.handOff, args: args,
		want: outcome{1, 0}, after: changed(entry{"n", "", 2, 0, 0, "n"}),
	}})
	if ask(s, s.other, "SELECT IS_FREE_LOCK(?)", signal) != "1" {
		s.Error("the signal was not given away")
	}
	wantGranted(s, s.conn, signal)
	waiter := ask(s, s.other, "SELECT CONNECTION_ID()")
	woken := make(chan string)
	go func() { woken <- ask(s, s.other, "SELECT GET_LOCK(?, 30)", signal) }()
	eventually(s, "the other connection waits for the signal", func() bool {
		const state = "SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = ?"
		return ask(s, s.conn, state, waiter) == "User lock"
	})
	s.run([]statementTest{{
		name: "a lock with a waiter", before: three, text: s.text.handOff, args: args,
		want: outcome{1, 0}, after: changed(entry{"n", "", 2, 0, kept, "n"}),
	}})
	if <-woken != "1" {
		s.Error("the waiter did not get the signal")
	}
	ask(s, s.other, "SELECT RELEASE_ALL_LOCKS()")
}

func testRenew(s *stage) {
	args := []any{30 * second, []byte("n"), []byte("a"), 2, 2}
	tests := []statementTest{
		{
			name: "a lock", before: three, want: outcome{1, newToken + 30*second},
			after: changed(entry{"n", "a", 2, -second, 30 * second, "n"}),
		},
		{
			name: "a longer term", before: changed(entry{"n", "a", 2, -second, minute, "n"}),
			want: outcome{0, newToken + 30*second},
		},
		{name: "a lock that ends now", before: changed(entry{"n", "a", 2, -second, 0, "n"})},
		{name: "another owner's lock", before: changed(entry{"n", "c", 2, -second, second, "n"})},
		{name: "another grant", before: changed(entry{"n", "a", 3, -second, second, "n"})},
		{name: "an unknown name", before: []entry{three[0], three[2]}},
	}
	for i := range tests {
		tests[i].text, tests[i].args = s.text.renew, args
	}
	s.run(append(tests, statementTest{
		name: "any grant", before: three, text: s.text.renew,
		args:  []any{30 * second, []byte("n"), []byte("a"), 0, 0},
		want:  outcome{1, newToken + 30*second},
		after: changed(entry{"n", "a", 2, -second, 30 * second, "n"}),
	}))
}

func testRenewMany(s *stage) {
	m, n, o := []byte("m"), []byte("n"), []byte("o")
	a := []byte("a")
	renewed := entry{"m", "a", 1, -second, 30 * second, "m"}
	tests := []statementTest{
		{
			name: "two locks and another owner's", before: three,
			want:  outcome{2, newToken + 30*second},
			after: []entry{renewed, {"n", "a", 2, -second, 30 * second, "n"}, three[2]},
		},
		{
			name: "a longer term", before: changed(entry{"n", "a", 2, -second, minute, "n"}),
			want:  outcome{1, newToken + 30*second},
			after: []entry{renewed, {"n", "a", 2, -second, minute, "n"}, three[2]},
		},
		{
			name: "locks that end now", before: []entry{
				{"m", "a", 1, -second, 0, "m"},
				{"n", "a", 2, -second, 0, "n"},
				{"o", "a", 3, -second, 0, "o"},
			},
		},
	}
	text := withNames(s.text.renewFree, 3)
	args := []any{m, n, o, 3, 30 * second, true, m, a, 1, n, a, 2, o, a, 3}
	for i := range tests {
		tests[i].text, tests[i].args = text, args
	}
	s.run(append(tests, statementTest{
		name: "another grant", before: changed(entry{"n", "a", 7, -second, second, "n"}),
		text: text, args: args, want: outcome{1, newToken + 30*second},
		after: []entry{renewed, {"n", "a", 7, -second, second, "n"}, three[2]},
	}, statementTest{
		name: "any grants", before: three, text: text,
		args:  []any{m, n, o, 3, 30 * second, false, m, a, 0, n, a, 0, o, a, 0},
		want:  outcome{2, newToken + 30*second},
		after: []entry{renewed, {"n", "a", 2, -second, 30 * second, "n"}, three[2]},
	}))
	s.set(changed(entry{"n", "a", 2, -second, 0, "n"}))
	s.wantRows(fmt.Sprintf("m a 1 1 %d\nn a 2 0 %d", newToken+second, newToken),
		withNames(s.text.holders, 2), m, n)
}

// writable is the row of list.sql that reports a server that is not read-only.
const writable = "   0 0 0 0 0 "

func testList(s *stage) {
	s.set([]entry{
		{"l", "a", 1, -second, second, "l"},
		{"m", "a", 2, -second, 2 * second, "meta"},
		{"m0", "a", 3, -second, 0, "ends now"},
		{"m1", "", 4, -second, second, "kept"},
		{"n", "b", 5, -2 * second, 1, "n"},
		{"o", "b", 6, -second, second, "o"},
	})
	const unix = 1800000000005007
	m := fmt.Sprintf("\nm a meta 2 %d %d %d 0 ", unix-second, unix+2*second, unix)
	n := fmt.Sprintf("\nn b n 5 %d %d %d 0 ", unix-2*second, unix+1, unix)
	for _, text := range []string{s.text.list, s.text.listPlain} {
		s.wantRows(writable+m+n, text, 10, []byte("m"), []byte("o"), 10)
		s.wantRows(writable+m, text, 10, []byte("m"), []byte("o"), 1)
		s.wantRows(writable, text, 10, []byte("p"), []byte("q"), 10)
	}
}

// testLook removes SLEEP from sleep.sql. The statement then returns the number of seconds that it
// would sleep.
func testLook(s *stage) {
	sleep := strings.Replace(s.text.sleep, "SLEEP(", "(", 1)
	for _, tt := range []struct {
		row                  entry
		held, seconds, short string // short is with a limit of 3 s
	}{
		{entry{"n", "a", 2, -second, 10 * second, "n"}, "1", "10.0000", "3.0000"},
		{entry{"n", "a", 2, -second, 1, "n"}, "1", "0.0000", "0.0000"},
		{entry{"n", "a", 2, -second, 0, "n"}, "0", "0.0000", "0.0000"},
		{entry{"n", "a", 2, -second, -2 * second, "n"}, "0", "0.0000", "0.0000"},
		{entry{"n", "", 2, -second, 10 * second, "n"}, "0", "0.0000", "0.0000"},
		{entry{"n", "*", 2, -second, 10 * second, "n"}, "0", "0.0000", "0.0000"},
	} {
		s.set(changed(tt.row))
		s.wantRows(tt.held+" 0", s.text.held, []byte("n"))
		s.wantRows(tt.seconds+" 0", sleep, minute, []byte("n"))
		s.wantRows(tt.short+" 0", sleep, 3*second, []byte("n"))
	}
	s.set([]entry{three[0]})
	s.wantRows("0 0", s.text.held, []byte("n"))
	s.wantRows("0.0000 0", sleep, minute, []byte("n"))
}

// testRoster checks that a roster is stored only if the row is as it was read.
func testRoster(s *stage) {
	const signal, kept = "dlock stage", 50_000
	const unix = 1800000000005007
	row := func(owner string, token, expires int64) []entry {
		return []entry{{"n", owner, token, -second, expires, ""}}
	}
	was := []any{[]byte("n"), []byte("a"), 2, unix + second}
	write := append(append([]any{7, unix, unix + minute, []byte("[]")}, was...), false)
	clearing := append([]any{signal, kept}, was...)
	others := []statementTest{
		{name: "another owner", before: row("b", 2, second)},
		{name: "another token", before: row("a", 3, second)},
		{name: "another end", before: row("a", 2, second+1)},
		{name: "no row", before: []entry{}},
	}
	for _, tt := range []struct {
		text string
		args []any
		want outcome
		rows []entry
	}{
		{s.text.rosterWrite, write, outcome{1, 0}, []entry{{"n", "*", 7, 0, minute, ""}}},
		{s.text.rosterClear, clearing, outcome{1, 0}, []entry{{"n", "", 2, 0, 0, ""}}},
	} {
		tests := append(slices.Clone(others), statementTest{
			name: "the same row", before: row("a", 2, second), want: tt.want, after: tt.rows,
		})
		for i := range tests {
			tests[i].text, tests[i].args = tt.text, tt.args
		}
		s.run(tests)
	}
	waiter := s.waits(signal)
	s.run([]statementTest{
		{
			name: "a waiter", before: row("a", 2, second), text: s.text.rosterClear,
			args: clearing, want: outcome{1, waiter}, after: []entry{{"n", "", 2, 0, kept, ""}},
		},
		{
			name: "a new row", text: s.text.rosterRow, args: []any{[]byte("n")},
			want: outcome{1, 0}, after: []entry{{"n", "", 0, 0, 0, ""}},
		},
		{
			name: "a row that exists", before: row("a", 2, second), text: s.text.rosterRow,
			args: []any{[]byte("n")},
		},
	})
}

// testRosterWait checks which rosters take a waiter by roster-wait.sql.
func testRosterWait(s *stage) {
	const unix, place = 1800000000005007, 10 * second
	reader := `{"kind":"r","owner":"a","granted":true,"since":1,"expires":2}`
	permit := strings.Replace(reader, `"r"`, `"p2"`, 1)
	for _, tt := range []struct {
		name, owner, roster string
		expires             int64
		kinds               string
		changed             int64
	}{
		{"a writer behind a reader", "*", reader, minute, "wr", 1},
		{"the last entry has the longest term", "*", reader, second, "wr", 1},
		{"a permit", "*", permit, minute, "p2", 1},
		{"a permit behind a reader", "*", reader, minute, "p2", 0},
		{"a writer behind a permit", "*", permit, minute, "wr", 0},
		{"a permit of another limit", "*", permit, minute, "p3", 0},
		{
			"the owner is present", "*", reader + "," + strings.Replace(reader, `"a"`, `"b"`, 1),
			minute, "wr", 0,
		},
		{"two entries are the maximum", "*", reader + "," + reader, minute, "wr", 0},
		{"an expired roster", "*", reader, 0, "wr", 0},
		{"a plain row", "a", reader, minute, "wr", 0},
		{"an empty roster", "*", "", minute, "wr", 0},
	} {
		before := entry{"n", tt.owner, 2, -second, tt.expires, ""}
		s.set([]entry{before})
		do(s, s.conn, "UPDATE stage SET roster = ?", "["+tt.roster+"]")
		first, other := tt.kinds, tt.kinds
		if tt.kinds == "wr" {
			first, other = "w", "r"
		}
		out, err := exec(s.Context(), s.conn, s.text.rosterWait, `{"kind":"w","owner":"b"}`,
			place, place, []byte("n"), first, other, 2, 1000, "b")
		if err != nil || out != (outcome{tt.changed, tt.changed * newToken}) {
			s.Errorf("%s: %+v, %v", tt.name, out, err)
		}
		text := ask(s, s.conn, "SELECT roster FROM stage")
		r, err := roster.Parse([]byte(text))
		if err != nil {
			s.Fatal(err)
		}
		want := []entry{before}
		if tt.changed == 1 {
			want = []entry{{"n", "*", newToken, -second, max(tt.expires, place), ""}}
			last := roster.Entry{Word: "w", Owner: "b", Since: unix, Expires: unix + place}
			if r[len(r)-1] != last {
				s.Errorf("%s: the roster is %s", tt.name, text)
			}
		}
		if got := s.get(); !slices.Equal(got, want) {
			s.Errorf("%s: the rows are %+v, want %+v", tt.name, got, want)
		}
	}
}

// testRosterGrant checks which waiters of a roster become holders by roster-grant.sql, and which of
// them keep their places by roster-renew.sql.
func testRosterGrant(s *stage) {
	const unix, place, ttl = 1800000000005007, 10 * second, minute
	of := func(word kind.Kind, owner string, granted bool, rest int64) roster.Entry {
		return roster.Entry{
			Word: word, Owner: owner, Granted: granted, Since: 1, Expires: unix + rest,
		}
	}
	other := of(kind.Writer, "a", true, second)
	writer, reader, permit := of(kind.Writer, "b", false, second),
		of(kind.Reader, "b", false, second), of("p2", "b", false, second)
	for _, tt := range []struct {
		name             string
		roster           roster.Roster
		mode             backend.Mode
		isGranted, waits bool
	}{
		{"a writer in front", roster.Roster{writer}, backend.Exclusive, true, true},
		{"a writer before others", roster.Roster{writer, other}, backend.Exclusive, true, true},
		{"a writer behind another", roster.Roster{other, writer}, backend.Exclusive, false, true},
		{
			"a writer behind a reader",
			roster.Roster{of(kind.Reader, "a", true, second), writer},
			backend.Exclusive, false, true,
		},
		{
			"a reader behind a reader",
			roster.Roster{of(kind.Reader, "a", true, second), reader},
			backend.Shared, true, true,
		},
		{"a reader behind a writer", roster.Roster{other, reader}, backend.Shared, false, true},
		{
			"a permit behind another",
			roster.Roster{of("p2", "a", true, second), permit},
			backend.Permit, true, true,
		},
		{
			"a permit behind two others",
			roster.Roster{of("p2", "a", true, second), of("p2", "c", true, second), permit},
			backend.Permit, false, true,
		},
		{
			"a holder",
			roster.Roster{of(kind.Writer, "b", true, second)},
			backend.Exclusive, false, false,
		},
		{
			"a place that is over",
			roster.Roster{of(kind.Writer, "b", false, 0), other},
			backend.Exclusive, false, false,
		},
		{"no entry", roster.Roster{other}, backend.Exclusive, false, false},
		{
			"another owner",
			roster.Roster{of(kind.Writer, "bb", false, second)},
			backend.Exclusive, false, false,
		},
	} {
		store := func() {
			s.set([]entry{{"n", "*", 2, -second, second, ""}})
			do(s, s.conn, "UPDATE stage SET roster = ?", tt.roster.Text())
		}
		check := func(text string, want roster.Roster) {
			got := ask(s, s.conn, "SELECT roster FROM stage")
			r, err := roster.Parse([]byte(got))
			if err != nil || !slices.Equal(r, want) {
				s.Errorf("%s, %s: the roster is %s, want %s", tt.name, text, got, want.Text())
			}
		}
		after := func(change func(*roster.Entry), isMade bool) roster.Roster {
			r := slices.Clone(tt.roster)
			if isMade {
				change(r.Find("b"))
			}
			return r
		}
		store()
		req := &backend.Request{
			Key: "n", Owner: "b", TTL: time.Duration(ttl) * time.Microsecond,
			Mode: tt.mode, Limit: 2,
		}
		out, err := exec(s.Context(), s.conn, s.text.rosterGrant, grantArgs(req)...)
		if err != nil || out.changed == 1 != tt.isGranted || tt.isGranted && out.id != newToken {
			s.Errorf("%s: %+v, %v", tt.name, out, err)
		}
		check("granted", after(func(e *roster.Entry) {
			e.Granted, e.Fence, e.Since, e.Expires = true, newToken, unix, unix+ttl
		}, tt.isGranted))
		store()
		out, err = exec(s.Context(), s.conn, s.text.rosterKeep, renewArgs("n", "b", 0, place)...)
		if err != nil || out.changed == 1 != tt.waits {
			s.Errorf("%s, prolonged: %+v, %v", tt.name, out, err)
		}
		check("prolonged", after(func(e *roster.Entry) { e.Expires = unix + place }, tt.waits))
	}
}

// testRosterReads checks what is read of a roster, and that a plain row shows none, although a
// former one is still there.
func testRosterReads(s *stage) {
	const unix = 1800000000005007
	s.set([]entry{
		{"n", "*", 5, -second, second, ""},
		{"o", "b", 6, -second, second, "meta"},
	})
	do(s, s.conn, "UPDATE stage SET roster = 'text'")
	n := fmt.Sprintf("* 5 %d %d %d 0  text", unix-second, unix+second, unix)
	o := fmt.Sprintf("b 6 %d %d %d 0 meta ", unix-second, unix+second, unix)
	s.wantRows(n, s.text.rosterRead, []byte("n"))
	s.wantRows(o, s.text.rosterRead, []byte("o"))
	s.wantRows(fmt.Sprintf("* 5 %d 0 text", unix), s.text.rosterLook, 4, []byte("n"))
	s.wantRows(fmt.Sprintf("* 5 %d 0 ", unix), s.text.rosterLook, 5, []byte("n"))
	s.wantRows(fmt.Sprintf("b 6 %d 0 ", unix), s.text.rosterLook, 5, []byte("o"))
	listed := fmt.Sprintf("%s\nn *  5 %d %d %d 0 ", writable, unix-second, unix+second, unix)
	s.wantRows(listed+"text", s.text.list, 4, []byte("n"), []byte("o"), 10)
	s.wantRows(listed, s.text.list, 3, []byte("n"), []byte("o"), 10)
}

func testSweep(s *stage) {
	rows := []entry{
		{"m", "", 1, -minute, -second - 1, ""},
		{"n", "", 2, -minute, -second, ""},
		{"o", "", 3, -minute, -minute, ""},
	}
	s.set(rows)
	s.wantRows("m 1\nn 0\no 1", s.text.stale, second, []byte(""), 10)
	s.wantRows("n 0\no 1", s.text.stale, second, []byte("m"), 10)
	s.wantRows("n 0", s.text.stale, second, []byte("m"), 1)
	cursor := []entry{{"c", "", 0, -second, -second, "x"}}
	claim := func(begin, end string) []any {
		return []any{[]byte("c"), []byte(end), []byte(begin), []byte(begin), []byte(end)}
	}
	s.run([]statementTest{
		{
			name: "two rows of three", before: rows, text: withNames(s.text.sweep, 2),
			args: []any{[]byte("m"), []byte("n"), second}, want: outcome{1, 0}, after: rows[1:],
		},
		{
			name: "the first claim", text: s.text.claim, args: claim("", "x"),
			want: outcome{1, 0}, after: []entry{{"c", "", 0, 0, 0, "x"}},
		},
		{
			name: "a claim", before: cursor, text: s.text.claim, args: claim("x", "y"),
			want: outcome{2, 0}, after: []entry{{"c", "", 0, -second, 0, "y"}},
		},
		{name: "a claim that is late", before: cursor, text: s.text.claim, args: claim("w", "y")},
	})
}

func testShape(s *stage) {
	const want = "name varbinary(1024) PRI InnoDB\nowner varbinary(64)  InnoDB\n" +
		"token bigint  InnoDB\nsince datetime(6)  InnoDB\nexpires datetime(6)  InnoDB\n" +
		"meta varbinary(1024)  InnoDB\nroster mediumblob  InnoDB"
	got := s.rows(plain(shapeSQL), "stage", "stage", "stage")
	if got = strings.Replace(got, "(20)", "", 1); got != want { // MariaDB shows a width
		s.Errorf("the table is\n%s, want\n%s", got, want)
	}
	s.wantRows("", plain(shapeSQL), "nothing", "nothing", "nothing")
	plan := s.rows("EXPLAIN "+plain(shapeSQL), "stage", "stage", "stage")
	if strings.Contains(plan, "Scanned all databases") {
		s.Errorf("the server opens the tables of all databases:\n%s", plan)
	}
}
