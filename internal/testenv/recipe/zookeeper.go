package recipe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

const (
	// zookeeperTick is the server's unit of time. The server grants session timeouts of 2 to 20
	// ticks.
	zookeeperTick = 2 * time.Second
	// zookeeperEnsembleTick makes the members of an ensemble detect a silent member soon, within
	// zookeeperSyncLimit ticks.
	zookeeperEnsembleTick = 500 * time.Millisecond

	zookeeperPort = 2181

	zookeeperInitLimit = 20 // ticks in which a member must catch up with the leader
	// zookeeperSyncLimit is the number of ticks after which a silent member is given up. Its
	// clients then lose their connections. On a busy machine a member can be silent for 2 s.
	zookeeperSyncLimit = 8
)

const (
	zookeeperJar = "/usr/share/java/zookeeper.jar"
	// zookeeperClassPath has the libraries that a server needs for TLS, too.
	zookeeperClassPath = zookeeperJar +
		":/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"
)

var (
	// zookeeperFlags make a small server. As a member of an ensemble it soon gives up a missing
	// member.
	zookeeperFlags = []string{
		"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no",
		"-Dzookeeper.cnxTimeout=500",
	}
	// zookeeperReaping makes a server remove empty containers every second, not every minute.
	zookeeperReaping = []string{
		"-Dznode.container.checkIntervalMs=1000", "-Dznode.container.maxPerMinute=1000000",
	}
)

// ZooKeeper returns the recipe of a ZooKeeper server that removes empty containers every second. It
// grants sessions of 4 s to 40 s.
func ZooKeeper() *server.Recipe {
	return zookeeperConfig{tick: zookeeperTick, flags: zookeeperReaping}.recipe()
}

// ZooKeeperTick returns the recipe of a ZooKeeper server with sessions of 2 to 20 ticks, which
// removes empty containers every minute.
func ZooKeeperTick(tick time.Duration) *server.Recipe {
	return zookeeperConfig{tick: tick}.recipe()
}

// ZooKeeperTLS returns the recipe of a ZooKeeper server that accepts only TLS.
func ZooKeeperTLS(s pki.ServerTLS) *server.Recipe {
	r := zookeeperConfig{tick: zookeeperTick, tls: &s}.recipe()
	r.URL, r.TLS = "zk://ADDRESS/?tls=1", &s
	return r
}

// ZooKeeperEnsemble returns the recipe of an ensemble of three ZooKeeper servers, which grant
// sessions of 1 s to 40 s.
func ZooKeeperEnsemble() *group.EnsembleRecipe {
	return &group.EnsembleRecipe{
		Name: "zookeeper-3",
		Member: func(n int, peers []group.Peer) *server.Recipe {
			config := zookeeperConfig{
				tick: zookeeperEnsembleTick, flags: zookeeperReaping, member: n + 1,
				lines: []string{"maxSessionTimeout=40000"},
			}
			for i, p := range peers {
				config.servers = append(config.servers,
					fmt.Sprintf("server.%d=%s:%d:%d", i+1, p.Host, p.Ports[0], p.Ports[1]))
			}
			return config.recipe()
		},
		Leads: func(ctx context.Context, member server.Target) (bool, error) {
			answer, err := zookeeperStatus(ctx, member)
			return strings.Contains(answer, "Mode: leader\n"), err
		},
	}
}

// zookeeperConfig is the configuration of a server, without its address and its data folder.
type zookeeperConfig struct {
	tick    time.Duration
	member  int      // the number in an ensemble, from 1
	servers []string // all members: "server.1=host:2888:3888"
	lines   []string // further lines of zoo.cfg, without spaces
	flags   []string // further flags of the virtual machine
	tls     *pki.ServerTLS
}

func (c zookeeperConfig) recipe() *server.Recipe {
	return &server.Recipe{
		Spec: runner.Spec{
			Name: "zookeeper", Port: zookeeperPort,
			Program: "java", Library: zookeeperJar, Package: "zookeeper",
			Env: c.variables,
			Command: func(l runner.Listen) []string {
				if l.Container {
					return []string{"zkServer.sh", "start-foreground"}
				}
				return c.process(l)
			},
		},
		URL:   "zk://ADDRESS",
		Probe: zookeeperVersion,
	}
}

// variables returns the environment variables that configure a container.
func (c zookeeperConfig) variables(l runner.Listen) map[string]string {
	return map[string]string{
		"ZOO_TICK_TIME":              strconv.FormatInt(c.tick.Milliseconds(), 10),
		"ZOO_INIT_LIMIT":             strconv.Itoa(zookeeperInitLimit),
		"ZOO_SYNC_LIMIT":             strconv.Itoa(zookeeperSyncLimit),
		"ZOO_MAX_CLIENT_CNXNS":       "0", // outside clients have one address
		"ZOO_4LW_COMMANDS_WHITELIST": "srvr",
		"ZOO_ADMINSERVER_ENABLED":    "false",
		"ZOO_CFG_EXTRA":              strings.Join(append(c.secure(l), c.lines...), " "),
		"JVMFLAGS":                   strings.Join(slices.Concat(zookeeperFlags, c.flags), " "),
		"ZOO_MY_ID":                  strconv.Itoa(max(c.member, 1)),
		"ZOO_SERVERS":                strings.Join(c.members(l), " "),
	}
}

// members returns the members of the ensemble, with the address for clients unless there is TLS. A
// server that stands alone is its only member, and listens at no address for others.
func (c zookeeperConfig) members(l runner.Listen) []string {
	members := slices.Clone(c.servers)
	if len(members) == 0 {
		members = []string{"server.1=127.0.0.1:2888:3888"}
	}
	if c.tls == nil {
		for i := range members {
			members[i] += fmt.Sprintf(";%s:%d", l.Host, l.Port)
		}
	}
	return members
}

// secure returns the lines for TLS at l, or nil without TLS. Only Netty supports TLS.
func (c zookeeperConfig) secure(l runner.Listen) []string {
	if c.tls == nil {
		return nil
	}
	lines := []string{
		fmt.Sprintf("secureClientPort=%d", l.Port), "secureClientPortAddress=" + l.Host,
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"ssl.keyStore.location=" + path.Join(l.Dir, pki.BothFile),
	}
	if c.tls.Clients == nil {
		return append(lines, "ssl.clientAuth=none")
	}
	return append(lines, "ssl.clientAuth=need",
		"ssl.trustStore.location="+path.Join(l.Dir, pki.ClientsFile))
}

// process returns the command of the server in Debian's package. If process cannot write the files,
// the server's log has the reason.
func (c zookeeperConfig) process(l runner.Listen) []string {
	lines := c.secure(l)
	if lines == nil {
		lines = []string{fmt.Sprintf("clientPort=%d", l.Port), "clientPortAddress=" + l.Host}
	}
	lines = append(append(lines, slices.Concat(c.servers, c.lines)...),
		"dataDir="+l.Dir, fmt.Sprintf("tickTime=%d", c.tick.Milliseconds()),
		fmt.Sprintf("initLimit=%d", zookeeperInitLimit),
		fmt.Sprintf("syncLimit=%d", zookeeperSyncLimit),
		"maxClientCnxns=0", "4lw.commands.whitelist=srvr", "admin.enableServer=false")
	file := filepath.Join(l.Dir, "zoo.cfg")
	_ = os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600)
	_ = os.WriteFile(filepath.Join(l.Dir, "myid"), []byte(strconv.Itoa(c.member)), 0o600)
	return append(slices.Concat([]string{"java"}, zookeeperFlags, c.flags),
		"-cp", zookeeperClassPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
}

// zookeeperVersion returns the version in the answer to srvr, which begins with "Zookeeper version:
// 3.9.6-…, built on …".
func zookeeperVersion(ctx context.Context, t server.Target) (string, error) {
	answer, err := zookeeperStatus(ctx, t)
	if err != nil {
		return "", err
	}
	after, ok := strings.CutPrefix(answer, "Zookeeper version: ")
	version, _, _ := strings.Cut(after, "-")
	if !ok || !strings.Contains(after, "Mode: ") {
		return "", errors.New("the server does not serve yet, or does not report its version")
	}
	return "ZooKeeper " + version, nil
}

// zookeeperStatus returns the answer to the four-letter command srvr.
func zookeeperStatus(ctx context.Context, t server.Target) (string, error) {
	return t.Request(ctx, "srvr", func(r *bufio.Reader) (string, error) {
		answer, err := io.ReadAll(io.LimitReader(r, 4096))
		return string(answer), err
	})
}
