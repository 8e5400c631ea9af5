package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path"
	"runtime/pprof"
	"strconv"
	"time"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// ContainerDir is the Listen.Dir of all containers.
const ContainerDir = "/data"

// The hosts at which servers listen: the loopback interface of this machine, or all interfaces of a
// container with its own network.
const loopback, everywhere = "127.0.0.1", "0.0.0.0"

// container is a server in a container.
type container struct {
	client *client.Client
	ctr    *testcontainers.DockerContainer
	listen Listen
}

// customizer is an option of testcontainers.
type customizer = testcontainers.ContainerCustomizer

// newContainer starts a container whose server is at a port of the loopback interface.
func newContainer(sp *Spec, image string, port int) (Control, error) {
	shared, err := canShareNetwork()
	switch {
	case err != nil:
		return nil, err
	case shared:
		return sharingContainer(sp, image, port)
	}
	return publishedContainer(sp, image, port)
}

// sharingContainer starts a container that uses the network of this machine. Its server listens at
// port of the loopback interface. Without Docker's forwarding a request costs the processors a
// quarter less.
func sharingContainer(sp *Spec, image string, port int) (Control, error) {
	return startContainer(sp, image, inContainer(loopback, port),
		testcontainers.WithHostConfigModifier(useNetwork(network.NetworkHost)))
}

// publishedContainer starts a container with a network of its own. Docker forwards port of the
// loopback interface to its server.
func publishedContainer(
	sp *Spec, image string, port int, more ...customizer,
) (Control, error) {
	return startContainer(sp, image, inContainer(everywhere, sp.Port), append(more,
		testcontainers.WithExposedPorts(strconv.Itoa(sp.Port)+"/tcp"),
		testcontainers.WithHostConfigModifier(publish(sp.Port, port)))...)
}

// startContainer starts a container whose server listens at l.
func startContainer(sp *Spec, image string, l Listen, more ...customizer) (Control, error) {
	if sp.Env != nil {
		more = append(more, testcontainers.WithEnv(sp.Env(l)))
	}
	c, err := runContainer(image, append(more,
		testcontainers.WithCmd(sp.command(l)...),
		testcontainers.WithFiles(containerFiles(sp.Files)...))...)
	if err != nil {
		return nil, err
	}
	c.listen = l
	return c, nil
}

func inContainer(host string, port int) Listen {
	return Listen{Host: host, Port: port, Dir: ContainerDir, Container: true}
}

func useNetwork(mode dockercontainer.NetworkMode) func(*dockercontainer.HostConfig) {
	return func(hc *dockercontainer.HostConfig) { hc.NetworkMode = mode }
}

// runContainer starts a container. If this process is killed, the next sweep removes the container.
func runContainer(image string, more ...customizer) (*container, error) {
	c, err := docker()
	if err != nil {
		return nil, err
	}
	labels, err := ownLabels()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	share, err := processorShare(ctx, c)
	if err != nil {
		return nil, err
	}
	ctr, err := testcontainers.Run(ctx, image, append(more,
		testcontainers.WithLabels(labels), testcontainers.WithHostConfigModifier(share))...)
	if err != nil {
		return nil, errors.Join(err, testcontainers.TerminateContainer(ctr))
	}
	return &container{client: c, ctr: ctr}, nil
}

// serverShares is the weight of a server on the processors. A process has 1024.
const serverShares = 8 * 1024

// processorShare gives a container its own share of the processors. If Docker manages the control
// groups itself, it puts all containers into one group with the weight of one process. With ten
// other busy processes, all servers together then get a tenth of the machine: a Redis did not run
// for 11 s. With systemd, containers and users have equal shares.
func processorShare(ctx context.Context, c *client.Client) (
	func(*dockercontainer.HostConfig), error,
) {
	result, err := c.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, fmt.Errorf("read Docker's control groups: %w", err)
	}
	return func(hc *dockercontainer.HostConfig) {
		if result.Info.CgroupDriver == "cgroupfs" {
			hc.CgroupParent, hc.CPUShares = "/", serverShares
		}
	}, nil
}

// containerFiles returns files for a container. Every user of the container can read them.
func containerFiles(files map[string][]byte) []testcontainers.ContainerFile {
	var all []testcontainers.ContainerFile
	for name, content := range files {
		all = append(all, testcontainers.ContainerFile{
			Reader: bytes.NewReader(content), ContainerFilePath: path.Join(ContainerDir, name),
			FileMode: 0o644,
		})
	}
	return all
}

// publish maps a port to a fixed port of the loopback interface. An automatic port would change
// when the container is started again.
func publish(inside, outside int) func(*dockercontainer.HostConfig) {
	return func(hc *dockercontainer.HostConfig) { hc.PortBindings = portMap(inside, outside) }
}

func portMap(inside, outside int) network.PortMap {
	return network.PortMap{
		network.MustParsePort(strconv.Itoa(inside)): {
			{HostIP: netip.MustParseAddr(loopback), HostPort: strconv.Itoa(outside)},
		},
	}
}

// DirectAddr returns the address of a server inside its container. ok is false if the server has no
// such address, or if this machine cannot connect to it.
func DirectAddr(c Control) (addr string, ok bool) {
	ctr, ok := c.(*container)
	if !ok || ctr.listen.Host == loopback {
		return "", false
	}
	err := ctr.do(func(ctx context.Context, _ string) error {
		ip, err := ctr.ctr.ContainerIP(ctx)
		if err != nil {
			return err
		}
		addr = net.JoinHostPort(ip, strconv.Itoa(ctr.listen.Port))
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return addr, err == nil
}

// do makes one call of Docker's API for the container. It uses a goroutine without the labels of a
// test: the call opens connections that stay idle for up to 30 s after the test, and a case waits
// for the end of its own goroutines.
func (c *container) do(call func(ctx context.Context, id string) error) error {
	done := make(chan error, 1)
	go func() {
		pprof.SetGoroutineLabels(context.Background())
		ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
		defer cancel()
		done <- call(ctx, c.ctr.GetContainerID())
	}()
	return <-done
}

// commands is the number of attempts to change the state of a container. On a busy machine Docker
// sometimes fails to freeze a container, and succeeds the next time.
const commands = 5

// change is do, repeated until the container is in a state that reached accepts.
func (c *container) change(
	reached func(*dockercontainer.State) bool, call func(ctx context.Context, id string) error,
) error {
	var errs []error
	for n := range commands {
		err := c.do(call)
		if err == nil || c.is(reached) {
			return nil
		}
		errs = append(errs, err)
		time.Sleep(time.Duration(n) * 200 * time.Millisecond)
	}
	return errors.Join(errs...)
}

func (c *container) is(reached func(*dockercontainer.State) bool) bool {
	return c.do(func(ctx context.Context, _ string) error {
		state, err := c.ctr.State(ctx)
		if err == nil && !reached(state) {
			err = errors.New("another state")
		}
		return err
	}) == nil
}

func isPaused(s *dockercontainer.State) bool  { return s.Paused }
func isRunning(s *dockercontainer.State) bool { return s.Running && !s.Paused }
func isEnded(s *dockercontainer.State) bool   { return !s.Running }

// Pause implements Control.
func (c *container) Pause() error {
	return c.change(isPaused, func(ctx context.Context, id string) error {
		_, err := c.client.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	})
}

// Resume implements Control.
func (c *container) Resume() error {
	return c.change(isRunning, func(ctx context.Context, id string) error {
		_, err := c.client.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

// Kill implements Control.
func (c *container) Kill() error {
	return c.change(isEnded, func(ctx context.Context, id string) error {
		kill := client.ContainerKillOptions{Signal: "KILL"}
		if _, err := c.client.ContainerKill(ctx, id, kill); err != nil {
			return err
		}
		ended := c.client.ContainerWait(ctx, id,
			client.ContainerWaitOptions{Condition: dockercontainer.WaitConditionNotRunning})
		select {
		case <-ended.Result:
			return nil
		case err := <-ended.Error:
			return err
		}
	})
}

// Start implements Control.
func (c *container) Start() error {
	return c.change(isRunning, func(ctx context.Context, id string) error {
		_, err := c.client.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
}

// Alive implements Control.
func (c *container) Alive() error {
	return c.do(func(ctx context.Context, _ string) error {
		state, err := c.ctr.State(ctx)
		if err == nil && !state.Running {
			err = fmt.Errorf("the container has ended with %d", state.ExitCode)
		}
		return err
	})
}

// Remove implements Control.
func (c *container) Remove() error {
	return c.do(func(ctx context.Context, id string) error {
		return removeContainer(ctx, c.client, id)
	})
}

// Logs implements Control.
func (c *container) Logs() string {
	var end bytes.Buffer
	err := c.do(func(ctx context.Context, _ string) error {
		r, err := c.ctr.Logs(ctx)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(&end, r)
		return err
	})
	if err != nil {
		return err.Error()
	}
	return end.String()
}
