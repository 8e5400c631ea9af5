package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"

	_ "github.com/dlock-go/dlock/etcdbackend"
	_ "github.com/dlock-go/dlock/memcachedbackend"
	_ "github.com/dlock-go/dlock/mysqlbackend"
	_ "github.com/dlock-go/dlock/pgbackend"
	_ "github.com/dlock-go/dlock/redisbackend"
	_ "github.com/dlock-go/dlock/zkbackend"
)

// peer is the lock of another library, or a lock that is written by hand. Its name contains the
// settings that decide its figures.
type peer struct {
	name string
	open func(context.Context, *backend.URL, bench.Settings) (bench.Process, error)
}

// peers has the peers that use the server of a scheme.
var peers = map[string][]peer{
	"redis": {
		{"redsync, retries after 50–250 ms", openRedsync},
		{"bsm/redislock, retries after 5 ms", openRedislock},
		{"rueidislock", openRueidislock},
	},
	"etcd": {
		{"etcd Mutex, session shared", openEtcdShared},
		{"etcd Mutex, session per contender", openEtcdEach},
		{"etcd Mutex, session per lock", openNewEtcd},
	},
	"zk":      {{"zk.Lock", openZKLock}},
	"mysql":   {{"MySQL GET_LOCK", openGetLock}},
	"mariadb": {{"MariaDB GET_LOCK", openGetLock}},
	"postgres": {
		{"PostgreSQL advisory lock", openAdvisory},
		{"PostgreSQL FOR UPDATE", openForUpdate},
	},
	"memcached": {{"add and cas, retries after 10 ms", openMemcached}},
}

// variants has the parameter that makes dlock's locks of another kind, and the name of that kind.
var variants = map[string]struct{ parameter, name string }{
	"redis":    {"fair=1", "fair"},
	"mysql":    {"lock=session", "session"},
	"mariadb":  {"lock=session", "session"},
	"postgres": {"lock=session", "session"},
}

// subjects returns dlock and its peers for the server of a URL. Only dlock uses
// the parameters of the URL.
func subjects(raw string) ([]bench.Subject, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	others, known := peers[u.Scheme]
	if !known {
		schemes := strings.Join(slices.Sorted(maps.Keys(peers)), ", ")
		return nil, fmt.Errorf("no peers of scheme %s, but of %s", u.Scheme, schemes)
	}
	if len(u.Hosts) == 0 {
		return nil, fmt.Errorf("%v has no host", u)
	}
	all, err := dlockSubjects(u.Scheme, raw)
	if err != nil {
		return nil, err
	}
	server := all[0].Server
	for _, p := range others {
		open := func(ctx context.Context, s bench.Settings) (bench.Process, error) {
			return p.open(ctx, u, s)
		}
		all = append(all, bench.Subject{Name: p.name, Open: open, Server: server})
	}
	for i := range all {
		all[i].Command = childOf(raw, all[i].Name)
	}
	return all, nil
}

// dlockSubjects returns dlock. If the driver has another kind of mutex, it also returns dlock with
// that kind. Both have the same floor.
func dlockSubjects(scheme, raw string) ([]bench.Subject, error) {
	plain, err := bench.URL(raw)
	if err != nil {
		return nil, err
	}
	plain.Name = "dlock " + scheme
	v, known := variants[scheme]
	if !known {
		return []bench.Subject{plain}, nil
	}
	separator := "?"
	if strings.Contains(raw, separator) {
		separator = "&"
	}
	other, err := bench.URL(raw + separator + v.parameter)
	other.Name, other.Server = plain.Name+", "+v.name, plain.Server
	return []bench.Subject{plain, other}, err
}

// The environment of a child names its subject. A URL may contain a password, and every user of the
// machine can read an argument.
const (
	childURL     = "DLOCK_PEERS_URL"
	childSubject = "DLOCK_PEERS_SUBJECT"
)

// childOf returns a function whose commands run this program as a child.
func childOf(raw, name string) func() *exec.Cmd {
	return func() *exec.Cmd {
		program, err := os.Executable()
		if err != nil {
			program = os.Args[0]
		}
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), childURL+"="+raw, childSubject+"="+name)
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// isChild reports whether this process is a child.
func isChild() bool { return os.Getenv(childSubject) != "" }

// serve executes the orders of the parent.
func serve(ctx context.Context) error {
	all, err := subjects(os.Getenv(childURL))
	if err != nil {
		return err
	}
	name := os.Getenv(childSubject)
	i := slices.IndexFunc(all, func(s bench.Subject) bool { return s.Name == name })
	if i < 0 {
		return fmt.Errorf("no subject %q", name)
	}
	return bench.Serve(ctx, os.Stdin, os.Stdout, all[i].Open)
}
