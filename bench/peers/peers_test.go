package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestMain(m *testing.M) {
	if isChild() {
		if serve(context.Background()) != nil {
			os.Exit(1)
		}
		return
	}
	testenv.Main(m)
}

// servers starts one server for each scheme that has peers.
var servers = map[string]func(testenv.TB) *testenv.Server{
	"redis": testenv.Redis, "etcd": testenv.Etcd, "zk": testenv.ZooKeeper, "mysql": testenv.MySQL,
	"postgres": testenv.Postgres,
	"mariadb":  testenv.MariaDB, "memcached": testenv.Memcached,
}

// urlOf returns the URL of a server with this scheme.
func urlOf(t *testing.T, scheme string) string {
	t.Helper()
	_, rest, _ := strings.Cut(servers[scheme](t).URL, ":")
	return scheme + ":" + rest
}

// eachSubject runs a test for dlock and each peer, all at the same time.
func eachSubject(t *testing.T, test func(*testing.T, bench.Subject)) {
	t.Helper()
	for scheme := range servers {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			all, err := subjects(urlOf(t, scheme))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				t.Run(s.Name, func(t *testing.T) {
					t.Parallel()
					test(t, s)
				})
			}
		})
	}
}

// connect opens a process that is closed when the test ends.
func connect(t *testing.T, s bench.Subject, settings bench.Settings) bench.Process {
	t.Helper()
	p, err := s.Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

func contender(t *testing.T, p bench.Process, name string) bench.Mutex {
	t.Helper()
	m, err := p.Mutex(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// open returns a contender in a separate process.
func open(t *testing.T, s bench.Subject, settings bench.Settings, name string) bench.Mutex {
	t.Helper()
	return contender(t, connect(t, s, settings), name)
}

func lock(t *testing.T, m bench.Mutex) bench.Lease {
	t.Helper()
	l, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t *testing.T, l bench.Lease) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// name returns the name of a lock, as a run would choose it.
func name() string { return "dlock-bench/" + strings.ToLower(rand.Text()[:8]) + "/test/0" }

// grant is the result of a Lock.
type grant struct {
	lease bench.Lease
	err   error
}

// request calls Lock in the background.
func request(t *testing.T, m bench.Mutex) <-chan grant {
	t.Helper()
	granted := make(chan grant, 1)
	go func() {
		l, err := m.Lock(t.Context())
		granted <- grant{l, err}
	}()
	return granted
}

// excluded checks that a Lock does not return within d, because another contender holds the lock.
func excluded(t *testing.T, granted <-chan grant, d time.Duration) {
	t.Helper()
	select {
	case g := <-granted:
		t.Fatalf("Lock returned while another contender held the lock: %v", g.err)
	case <-time.After(d):
	}
}

const (
	enough  = 500 * time.Millisecond // for a Lock that must not return
	longest = 20 * time.Second       // for a Lock that must return: some peers wait for the TTL
)

// handOff unlocks the lock and waits until the waiter has it. rueidislock sometimes
// does not wake the waiter.
func handOff(t *testing.T, s bench.Subject, held bench.Lease, granted <-chan grant) {
	t.Helper()
	unlock(t, held)
	select {
	case g := <-granted:
		if g.err != nil {
			t.Fatal(g.err)
		}
		unlock(t, g.lease)
	case <-time.After(longest):
		if s.Name != "rueidislock" {
			t.Fatal("Lock does not return")
		}
		t.Log("rueidislock has lost a wake-up")
	}
}

// TestExclusion checks that a waiter gets the lock of another process when the
// lock is free, and not before.
func TestExclusion(t *testing.T) {
	t.Parallel()
	eachSubject(t, func(t *testing.T, s bench.Subject) {
		t.Helper()
		name := name()
		first, second := open(t, s, bench.Settings{}, name), open(t, s, bench.Settings{}, name)
		held := lock(t, first)
		granted := request(t, second)
		excluded(t, granted, enough)
		handOff(t, s, held, granted)
	})
}

// TestExclusionInside checks that two contenders of one process do not have
// a lock at the same time.
func TestExclusionInside(t *testing.T) {
	t.Parallel()
	eachSubject(t, func(t *testing.T, s bench.Subject) {
		t.Helper()
		name := name()
		p := connect(t, s, bench.Settings{})
		held, second := lock(t, contender(t, p, name)), contender(t, p, name)
		if strings.Contains(s.Name, "session shared") {
			if _, err := second.Lock(t.Context()); !errors.Is(err, errOneSession) {
				t.Errorf("Lock returned %v", err)
			}
			unlock(t, held)
			return
		}
		granted := request(t, second)
		excluded(t, granted, enough)
		handOff(t, s, held, granted)
	})
}

// TestRenewal checks that a lock can be held for longer than its TTL.
func TestRenewal(t *testing.T) {
	t.Parallel()
	eachSubject(t, func(t *testing.T, s bench.Subject) {
		t.Helper()
		name, settings := name(), bench.Settings{TTL: 2 * time.Second}
		held := lock(t, open(t, s, settings, name))
		granted := request(t, open(t, s, settings, name))
		excluded(t, granted, 2*settings.TTL)
		handOff(t, s, held, granted)
	})
}

// TestClose checks that the waiters of a process wake when the process is closed.
func TestClose(t *testing.T) {
	t.Parallel()
	eachSubject(t, func(t *testing.T, s bench.Subject) {
		t.Helper()
		name := name()
		held := lock(t, open(t, s, bench.Settings{}, name))
		p, err := s.Open(t.Context(), bench.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		granted := request(t, contender(t, p, name))
		excluded(t, granted, enough)
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		select {
		case g := <-granted:
			if g.err == nil {
				t.Error("Lock of a closed process has no error")
			}
		case <-time.After(longest):
			t.Error("Lock of a closed process does not return")
		}
		unlock(t, held)
	})
}

// TestCloseFrees checks that Close ends the locks and the connections. The peers of these servers
// have no TTL that could end their locks.
func TestCloseFrees(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"mysql", "mariadb", "postgres"} {
		all, err := subjects(urlOf(t, scheme))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				closeFrees(t, s)
			})
		}
	}
}

func closeFrees(t *testing.T, s bench.Subject) {
	t.Helper()
	name := name()
	p, err := s.Open(t.Context(), bench.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	lock(t, contender(t, p, name))
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	held, err := open(t, s, bench.Settings{}, name).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, held)
}

// rowsURL makes a database for a test alone, and returns its URL and a connection to it. The table
// of FOR UPDATE does not exist there.
func rowsURL(t *testing.T) (string, *pgx.Conn) {
	t.Helper()
	url, _, _ := strings.Cut(urlOf(t, "postgres"), "?")
	admin, name := connectTo(t, url), "rows"+strings.ToLower(rand.Text()[:8])
	execute(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
	})
	url = url[:strings.LastIndex(url, "/")+1] + name
	return url, connectTo(t, url)
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url+"?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// forUpdate opens a process of FOR UPDATE.
func forUpdate(ctx context.Context, url string) (bench.Process, error) {
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return openForUpdate(ctx, u, bench.Settings{})
}

// TestTableIsMadeOnce opens processes at the same time on a server without the table. PostgreSQL
// refuses CREATE TABLE IF NOT EXISTS of all but one.
func TestTableIsMadeOnce(t *testing.T) {
	t.Parallel()
	url, conn := rowsURL(t)
	for range 10 {
		var processes sync.WaitGroup
		for range 8 {
			processes.Go(func() {
				p, err := forUpdate(t.Context(), url)
				if err != nil {
					t.Error(err)
					return
				}
				_ = p.Close()
			})
		}
		processes.Wait()
		execute(t, conn, "DROP TABLE bench_peers")
	}
}

// TestRowsAreRemoved checks that Close removes the rows of names that are free. Another process
// goes on with the row that it has locked.
func TestRowsAreRemoved(t *testing.T) {
	t.Parallel()
	url, conn := rowsURL(t)
	first, err := forUpdate(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"free", "taken"} {
		unlock(t, lock(t, contender(t, first, name)))
	}
	second, err := forUpdate(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	held := lock(t, contender(t, second, "taken"))
	if err := first.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	unlock(t, held)
	rows, err := conn.Query(t.Context(), "SELECT name FROM bench_peers")
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.Equal(names, []string{"taken"}) {
		t.Errorf("%v: there are rows of %q", err, names)
	}
}

// TestRemovedRow checks that contenders exclude each other while a third process removes the row.
func TestRemovedRow(t *testing.T) {
	t.Parallel()
	url, conn := rowsURL(t)
	p, err := forUpdate(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	unlock(t, lock(t, contender(t, p, "a")))
	tx, err := conn.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "DELETE FROM bench_peers")
	}
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan grant, 3)
	for range cap(granted) {
		waiter := contender(t, p, "a")
		go func() {
			l, err := waiter.Lock(t.Context())
			granted <- grant{l, err}
		}()
	}
	excluded(t, granted, enough)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range cap(granted) {
		select {
		case g := <-granted:
			if g.err != nil {
				t.Fatal(g.err)
			}
			excluded(t, granted, enough)
			unlock(t, g.lease)
		case <-time.After(longest):
			t.Fatal("Lock does not return")
		}
	}
}

// TestFullServer checks that a server without room for a connection refuses the lock, in words that
// fit into a table.
func TestFullServer(t *testing.T) {
	t.Parallel()
	all, err := subjects(testenv.NewPostgres(t, "-c", "max_connections=10").URL)
	if err != nil {
		t.Fatal(err)
	}
	p := connect(t, all[len(all)-2], bench.Settings{}) // advisory locks
	for range 11 {
		if _, err = contender(t, p, name()).Lock(t.Context()); err != nil {
			break
		}
	}
	if err == nil || !strings.HasPrefix(err.Error(), "FATAL: ") {
		t.Errorf("the last Lock returned %v", err)
	}
}

// TestCompare checks that one command measures dlock and its peers. A peer that fails
// has a row with the error.
func TestCompare(t *testing.T) {
	args := []string{
		"-json", "-duration=20ms", "-contenders=2", "-waiters=5", "-locks=20",
		"-workloads=W1,W2,W4,W5,W6",
	}
	want := make(map[string]bool)
	for scheme := range servers {
		url := urlOf(t, scheme)
		args = append(args, url)
		all, err := subjects(url)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			want[s.Name] = strings.HasPrefix(s.Name, "dlock ")
		}
	}
	var out, log bytes.Buffer
	if code := command(t.Context(), args, &out, &log); code != 0 {
		t.Fatalf("exit code %d: %s", code, log.String())
	}
	var report bench.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || !report.Complete {
		t.Fatalf("%v: %s", err, out.String())
	}
	rows := make(map[string]int)
	for _, r := range report.Results {
		rows[r.Subject]++
		if ours, known := want[r.Subject]; !known || ours && r.Error != "" {
			t.Errorf("%s of %s: %s", r.Workload, r.Subject, r.Error)
		}
		if r.Error != "" {
			t.Logf("%s of %s: %s", r.Workload, r.Subject, r.Error)
		}
	}
	for subject := range want {
		if rows[subject] < 5 {
			t.Errorf("%d rows of %s", rows[subject], subject)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var out, log bytes.Buffer
	args := []string{"-duration=20ms", "-workloads=W1", testenv.Memcached(t).URL}
	if code := command(t.Context(), args, &out, &log); code != 0 {
		t.Fatalf("exit code %d: %s", code, log.String())
	}
	for _, want := range []string{
		"# dlock memcached and its peers", "dlock memcached ", "add and cas",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out.String())
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"no URL"},
		{"redis:"},
		{"mem:"},
		{"redis://a", "redis://b"},
		{"-workloads=W11", "redis://a"},
		{"-contenders=2,0", "redis://a"},
		{"-duration=0", "redis://a"},
		{"-unknown", "redis://a"},
	} {
		var out, log bytes.Buffer
		code := command(t.Context(), args, &out, &log)
		if code != exitUsage || out.Len() > 0 || log.Len() == 0 {
			t.Errorf("%q: exit code %d: %s%s", args, code, out.String(), log.String())
		}
	}
}

// TestRootHasNoPeers checks that the module of dlock does not require the modules of the peers.
func TestRootHasNoPeers(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "all")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "github.com/redis/go-redis/v9 ") {
		t.Fatalf("%v: %s", err, out)
	}
	for _, peer := range []string{"redsync", "redislock", "rueidis"} {
		if strings.Contains(string(out), peer) {
			t.Errorf("go.mod of dlock has %s", peer)
		}
	}
}
