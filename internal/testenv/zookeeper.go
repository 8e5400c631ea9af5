package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// zookeeperTick is the server's unit of time: it grants session timeouts of 2 to 20 of them.
const zookeeperTick = 2 * time.Second

var zookeeperSpec = zookeeperWith(zookeeperTick)

// ZooKeeper returns the ZooKeeper server that all tests of this process share. [Main] stops it.
func ZooKeeper(tb TB) *Server {
	tb.Helper()
	return zookeeperSpec.share(tb)
}

// NewZooKeeper starts a ZooKeeper server for this test alone, with sessions of 2 to 20 ticks, and removes it when the test
// ends.
func NewZooKeeper(tb TB, tick time.Duration) *Server {
	tb.Helper()
	return zookeeperWith(tick).own(tb, nil)
}

// zookeeperWith makes a server that has every acknowledged write after a SIGKILL: it writes its log before it answers, but
// does not wait for the disk, which would cost each write some milliseconds.
func zookeeperWith(tick time.Duration) *spec {
	return &spec{
		name: "zookeeper", port: 2181, program: "java", pkg: "zookeeper",
		env: map[string]string{
			"ZOO_TICK_TIME":              strconv.FormatInt(tick.Milliseconds(), 10),
			"ZOO_MAX_CLIENT_CNXNS":       "0", // from outside a container all clients have one address
			"ZOO_4LW_COMMANDS_WHITELIST": "srvr",
			"ZOO_ADMINSERVER_ENABLED":    "false",
			"JVMFLAGS":                   strings.Join(zookeeperFlags, " "),
		},
		command: func(l listen, _ []string) []string {
			if l.host == "127.0.0.1" {
				return zookeeperProcess(l, tick)
			}
			return []string{"zkServer.sh", "start-foreground"}
		},
		url:   func(addr string, _ []string) string { return "zk://" + addr },
		probe: zookeeperVersion,
	}
}

var zookeeperFlags = []string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no"}

// zookeeperProcess starts the server of Debian's package. If the file cannot be written, the server says so in its log.
func zookeeperProcess(l listen, tick time.Duration) []string {
	config := filepath.Join(l.dir, "zoo.cfg")
	_ = os.WriteFile(config, fmt.Appendf(nil, "dataDir=%s\nclientPort=%d\nclientPortAddress=%s\ntickTime=%d\nmaxClientCnxns=0\n"+
		"4lw.commands.whitelist=srvr\nadmin.enableServer=false\n", l.dir, l.port, l.host, tick.Milliseconds()), 0o600)
	return append(append([]string{"java"}, zookeeperFlags...),
		"-cp", "/usr/share/java/zookeeper.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
}

// zookeeperVersion asks by the four-letter command srvr, whose answer begins with "Zookeeper version: 3.9.6-…, built on …".
func zookeeperVersion(ctx context.Context, rawURL string) (string, error) {
	addr, err := address(rawURL, 2181)
	if err != nil {
		return "", err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
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
	if err != nil {
		return "", err
	}
	after, ok := strings.CutPrefix(string(answer), "Zookeeper version: ")
	version, _, _ := strings.Cut(after, "-")
	if !ok || !strings.Contains(after, "Mode: ") {
		return "", errors.New("the server does not serve yet, or does not report its version")
	}
	return "ZooKeeper " + version, nil
}
