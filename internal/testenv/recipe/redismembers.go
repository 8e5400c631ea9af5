package recipe

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/runner"
)

// redisNodeTimeout is the time, in milliseconds, after which a silent member counts as dead. The
// suite stops servers for half of that time, and a busy machine must not count as dead.
const redisNodeTimeout = "3000"

// redisMember is one server of a cluster, or of a master with replicas and sentinels.
type redisMember struct {
	port, bus int
	flags     []string
	config    string // the lines of own.conf
}

// newRedisMembers chooses the ports of n members. A container uses the same ports inside, because
// the members announce them to clients.
func newRedisMembers(n int) ([]redisMember, error) {
	ports, err := runner.FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	members := make([]redisMember, n)
	for i := range members {
		members[i].port, members[i].bus = ports[2*i], ports[2*i+1]
	}
	return members, nil
}

func (m redisMember) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)) }

// startRedis starts the members. The first ones, as many as nodes, have data.
func startRedis(name string, members []redisMember, nodes int) (*group.Group, error) {
	plan := group.Plan{
		Name: name, Kind: Redis(), Nodes: nodes,
		Idle: []string{"redis-server", "--port", "0", "--unixsocket", "/data/pod", "--save", ""},
	}
	for _, m := range members {
		plan.Members = append(plan.Members, group.Member{Port: m.port, Command: m.command})
	}
	return plan.Start()
}

// command returns the command of the server. It writes the file own.conf only once, because the
// server itself rewrites the file. So a restart does not undo a failover.
func (m redisMember) command(l runner.Listen) []string {
	flags := Redis().Command(l)[1:]
	if slices.Contains(m.flags, "--sentinel") { // it has no data
		flags = redisServer("redis-server", l)[1:]
	}
	flags = append(flags, m.flags...)
	file := filepath.Join(l.Dir, "own.conf")
	if l.Container {
		const start = `[ -f "$0" ] || echo "$1" >"$0"; ` +
			`file=$0; shift; exec redis-server "$file" "$@"`
		return append([]string{"sh", "-c", start, file, m.config}, flags...)
	}
	// Without the file the server does not start, and its log has the reason.
	_ = os.WriteFile(file, []byte(m.config), 0o600)
	return append([]string{"redis-server", file}, flags...)
}
