package runner

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// controlTimeout limits each change of a container or network.
const controlTimeout = 2 * time.Minute

// Kinds of a [Source].
const (
	Container = "container"
	Process   = "process"
)

// Spec describes a server program, independently of the way to run it.
type Spec struct {
	Name    string            // of the image, see package images
	Port    int               // inside a container
	Program string            // on PATH or in /usr/sbin
	Library string            // the path of a file that Program loads; empty: it needs none
	Package string            // the Debian package of Program and Library
	Files   map[string][]byte // by their names in Listen.Dir

	// Env returns the environment variables of a container whose server listens at l; nil: none.
	Env func(l Listen) map[string]string

	// Command returns the program and the flags for a server that listens at l. The server keeps
	// its data in l.Dir when it is killed. Command may write files to l.Dir if the server is a
	// process.
	Command func(l Listen) []string
	// Args are further arguments. They follow the flags.
	Args []string
}

// Listen is the address of a server that will be started, and the folder for its data.
type Listen struct {
	Host      string
	Port      int
	Dir       string
	Container bool // the server will run in a container
}

// command returns the complete command.
func (sp *Spec) command(l Listen) []string { return append(sp.Command(l), sp.Args...) }

// Control starts and stops one server. The address and the data never change.
type Control interface {
	Pause() error  // like SIGSTOP: the kernel still accepts connections
	Resume() error // undoes Pause
	Kill() error   // sends SIGKILL and waits for the end
	Start() error  // after Kill
	Alive() error  // returns an error if the server does not run
	Remove() error // ends the server and deletes its data
	Logs() string  // the end of the server's output
}

// Source is an image or an installed program.
type Source struct {
	Kind string // Container or Process
	from string // the image, or the path of the program
}

// Find returns the image of a server if there is Docker and an image, otherwise the installed
// program. The error describes both failures in a line each.
func Find(sp *Spec) (Source, error) {
	image, dockerErr := findImage(sp.Name)
	if dockerErr == nil {
		return Source{Container, image}, nil
	}
	s, err := FindProgram(sp)
	if err != nil {
		return s, fmt.Errorf("with Docker: %w\n  %w", dockerErr, err)
	}
	return s, nil
}

// Start starts a server at a port of the loopback interface. It does not wait until the server
// answers.
func (s Source) Start(sp *Spec, port int) (Control, error) {
	if s.Kind == Container {
		return newContainer(sp, s.from, port)
	}
	return newProcess(sp, s.from, port)
}

// FreePort returns a port of the loopback interface that is not in use, and that no other call
// returns, in any process of the tests, as long as this process lives. It is below the kernel's
// range of ports for outgoing connections. Otherwise an outgoing connection could take the port of
// a killed server. It could even be a client that dials the server and so connects to itself.
func FreePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.N(12000)
		addr := net.JoinHostPort(loopback, strconv.Itoa(port))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err != nil {
			continue
		}
		err = reserve(addr)
		_ = l.Close()
		if err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// reservations are UDP sockets at the ports of this process's servers, which use TCP. They end with
// the process. A server that starts late, or again after a kill, finds its port free.
var reservations struct {
	sync.Mutex
	sockets []net.PacketConn
}

// reserve takes an address from all processes.
func reserve(addr string) error {
	socket, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	reservations.Lock()
	defer reservations.Unlock()
	reservations.sockets = append(reservations.sockets, socket)
	return nil
}

// FreePorts returns n different ports like the port of [FreePort].
func FreePorts(n int) ([]int, error) {
	var ports []int
	taken := make(map[int]bool)
	for len(ports) < n {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		if !taken[port] {
			taken[port] = true
			ports = append(ports, port)
		}
	}
	return ports, nil
}
