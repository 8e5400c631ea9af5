package testenv

import (
	"context"
	"crypto/tls"
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
)

// zookeeperTick is the server's unit of time: it grants session timeouts of 2 to 20 of them.
const zookeeperTick = 2 * time.Second

// zookeeperReaping makes a server remove empty containers every second, not every minute.
var zookeeperReaping = []string{"-Dznode.container.checkIntervalMs=1000", "-Dznode.container.maxPerMinute=1000000"}

var zookeeperSpec = zookeeperWith(zookeeperConfig{tick: zookeeperTick, flags: zookeeperReaping})

// ZooKeeper returns the ZooKeeper server that all tests of this process share. [Main] stops it.
func ZooKeeper(tb TB) *Server {
	tb.Helper()
	return zookeeperSpec.share(tb)
}

// NewZooKeeper starts a ZooKeeper server for this test alone, with sessions of 2 to 20 ticks, and removes it when the test
// ends.
func NewZooKeeper(tb TB, tick time.Duration) *Server {
	tb.Helper()
	return zookeeperWith(zookeeperConfig{tick: tick}).own(tb, nil)
}

// NewZooKeeperTLS starts a ZooKeeper server for this test alone that speaks nothing but TLS, and removes it when the test
// ends.
func NewZooKeeperTLS(tb TB, server ServerTLS) *Server {
	tb.Helper()
	probe := server.probe(tb)
	sp := zookeeperWith(zookeeperConfig{tick: zookeeperTick, tls: &server})
	sp.port, sp.files = zookeeperSecurePort, server.files()
	sp.url = func(addr string, _ []string) string { return "zk://" + addr + "/?tls=1" }
	sp.probe = func(ctx context.Context, rawURL string) (string, error) { return zookeeperVersion(ctx, rawURL, probe) }
	return sp.own(tb, nil)
}

// zookeeperEnsembleTick makes the members of an ensemble notice soon that one of them is silent, within 4 ticks.
const zookeeperEnsembleTick = 500 * time.Millisecond

var zookeeperEnsemble = &ensembleSpec{
	name: "zookeeper-3",
	member: func(n int, peers []peer) *spec {
		config := zookeeperConfig{tick: zookeeperEnsembleTick, flags: zookeeperReaping, member: n + 1, lines: []string{"maxSessionTimeout=40000"}}
		for i, p := range peers {
			config.servers = append(config.servers, fmt.Sprintf("server.%d=%s:%d:%d", i+1, p.host, p.ports[0], p.ports[1]))
		}
		return zookeeperWith(config)
	},
	leads: func(ctx context.Context, rawURL string) (bool, error) {
		answer, err := zookeeperAsk(ctx, rawURL, nil)
		return strings.Contains(answer, "Mode: leader\n"), err
	},
}

// ZooKeeperEnsemble returns the ensemble of three ZooKeeper servers that all tests of this process share, when all of
// them serve. They grant sessions of 1 s to 40 s. [Main] stops it.
func ZooKeeperEnsemble(tb TB) *Ensemble {
	tb.Helper()
	return zookeeperEnsemble.share(tb)
}

// zookeeperConfig is what a server is told, beside where it listens and keeps its data.
type zookeeperConfig struct {
	tick    time.Duration
	member  int      // of an ensemble: its number, from 1 on
	servers []string // all members: "server.1=host:2888:3888"
	lines   []string // further ones of zoo.cfg, without spaces
	flags   []string // further ones of the virtual machine
	tls     *ServerTLS
}

// zookeeperWith makes a server that has every acknowledged write after a SIGKILL: it writes its log before it answers, but
// does not wait for the disk, which would cost each write some milliseconds.
func zookeeperWith(config zookeeperConfig) *spec {
	return &spec{
		name: "zookeeper", port: zookeeperPort, program: "java", pkg: "zookeeper",
		env: config.variables(),
		command: func(l listen, _ []string) []string {
			if l.host == "127.0.0.1" {
				return config.process(l)
			}
			return []string{"zkServer.sh", "start-foreground"}
		},
		url:   func(addr string, _ []string) string { return "zk://" + addr },
		probe: func(ctx context.Context, rawURL string) (string, error) { return zookeeperVersion(ctx, rawURL, nil) },
	}
}

const (
	zookeeperPort       = 2181
	zookeeperSecurePort = 2281

	zookeeperInitLimit = 20 // ticks in which a member has to catch up with the leader
	zookeeperSyncLimit = 4  // ticks after which a silent one is given up
)

// zookeeperFlags make a small server, whose member of an ensemble gives one that is not there up soon.
var zookeeperFlags = []string{
	"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no", "-Dzookeeper.cnxTimeout=500",
}

// variables configure a container.
func (c *zookeeperConfig) variables() map[string]string {
	v := map[string]string{
		"ZOO_TICK_TIME":              strconv.FormatInt(c.tick.Milliseconds(), 10),
		"ZOO_INIT_LIMIT":             strconv.Itoa(zookeeperInitLimit),
		"ZOO_SYNC_LIMIT":             strconv.Itoa(zookeeperSyncLimit),
		"ZOO_MAX_CLIENT_CNXNS":       "0", // from outside a container all clients have one address
		"ZOO_4LW_COMMANDS_WHITELIST": "srvr",
		"ZOO_ADMINSERVER_ENABLED":    "false",
		"ZOO_CFG_EXTRA":              strings.Join(append(c.secure(containerDir, zookeeperSecurePort), c.lines...), " "),
		"JVMFLAGS":                   strings.Join(slices.Concat(zookeeperFlags, c.flags), " "),
	}
	if len(c.servers) > 0 {
		v["ZOO_MY_ID"] = strconv.Itoa(c.member)
		v["ZOO_SERVERS"] = strings.Join(c.servers, fmt.Sprintf(";%d ", zookeeperPort)) + fmt.Sprintf(";%d", zookeeperPort)
	}
	return v
}

// secure are the lines for TLS, with the files in dir; none without it. Netty alone speaks it.
func (c *zookeeperConfig) secure(dir string, port int) []string {
	if c.tls == nil {
		return nil
	}
	lines := []string{
		fmt.Sprintf("secureClientPort=%d", port), "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"ssl.keyStore.location=" + path.Join(dir, bothFile), "ssl.clientAuth=none",
	}
	if c.tls.Clients != nil {
		lines = append(lines[:3], "ssl.clientAuth=need", "ssl.trustStore.location="+path.Join(dir, clientsFile))
	}
	return lines
}

// process starts the server of Debian's package. If its files cannot be written, the server says so in its log.
func (c *zookeeperConfig) process(l listen) []string {
	lines := c.secure(l.dir, l.port)
	if lines == nil {
		lines = []string{fmt.Sprintf("clientPort=%d", l.port), "clientPortAddress=" + l.host}
	}
	lines = append(append(lines, slices.Concat(c.servers, c.lines)...),
		"dataDir="+l.dir, fmt.Sprintf("tickTime=%d", c.tick.Milliseconds()),
		fmt.Sprintf("initLimit=%d", zookeeperInitLimit), fmt.Sprintf("syncLimit=%d", zookeeperSyncLimit),
		"maxClientCnxns=0", "4lw.commands.whitelist=srvr", "admin.enableServer=false")
	file := filepath.Join(l.dir, "zoo.cfg")
	_ = os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600)
	_ = os.WriteFile(filepath.Join(l.dir, "myid"), []byte(strconv.Itoa(c.member)), 0o600)
	return append(slices.Concat([]string{"java"}, zookeeperFlags, c.flags),
		"-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
}

// zookeeperVersion reads the answer to srvr, which begins with "Zookeeper version: 3.9.6-…, built on …".
func zookeeperVersion(ctx context.Context, rawURL string, config *tls.Config) (string, error) {
	answer, err := zookeeperAsk(ctx, rawURL, config)
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

// zookeeperAsk returns the answer to the four-letter command srvr.
func zookeeperAsk(ctx context.Context, rawURL string, config *tls.Config) (string, error) {
	addr, err := address(rawURL, zookeeperPort)
	if err != nil {
		return "", err
	}
	conn, err := dial(ctx, addr, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4096))
	return string(answer), err
}
