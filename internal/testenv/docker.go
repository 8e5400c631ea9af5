package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	dockerTimeout = 30 * time.Second
	pullTimeout   = 5 * time.Minute
	leftoverAge   = time.Hour

	containerDir = "/data"

	labelHost = "dlock.test.host" // of the process that has started the container
	labelPID  = "dlock.test.pid"
)

// dockerClient is made on first use and closed by closeDocker.
var dockerClient struct {
	sync.Mutex
	*client.Client
	err error
}

// docker returns a client if the engine answers soon. Only the first call may wait.
func docker() (*client.Client, error) {
	dockerClient.Lock()
	defer dockerClient.Unlock()
	if dockerClient.Client == nil && dockerClient.err == nil {
		dockerClient.Client, dockerClient.err = connectDocker()
	}
	return dockerClient.Client, dockerClient.err
}

func closeDocker() {
	dockerClient.Lock()
	defer dockerClient.Unlock()
	if dockerClient.Client != nil {
		_ = dockerClient.Close() // closes idle connections
	}
	dockerClient.Client, dockerClient.err = nil, nil
}

func connectDocker() (*client.Client, error) {
	log.SetDefault(log.NewNoopLogger())
	ctx, cancel := context.WithTimeout(context.Background(), dockerTimeout)
	defer cancel()
	c, err := client.New(client.FromEnv)
	if err != nil {
		return nil, err
	}
	if _, err := c.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := configureTestcontainers(ctx, c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, sweep(c)
}

// configureTestcontainers sets what testcontainers reads from the environment only, and once: before its first call.
func configureTestcontainers(ctx context.Context, c *client.Client) error {
	var errs []error
	// Without its reaper's image every start would fail. sweep does the reaper's work.
	if _, err := c.ImageInspect(ctx, testcontainers.ReaperDefaultImage); errdefs.IsNotFound(err) { //nolint:staticcheck // nothing else names the version
		errs = append(errs, os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"))
	}
	// Where this file exists testcontainers looks for published ports at the gateway, but the engine publishes them where
	// its socket is.
	_, inContainer := os.Stat("/.dockerenv")
	_, chosen := os.LookupEnv("TESTCONTAINERS_HOST_OVERRIDE")
	if inContainer == nil && !chosen && strings.HasPrefix(c.DaemonHost(), "unix://") {
		errs = append(errs, os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1"))
	}
	return errors.Join(errs...)
}

// sweep removes what runs that were killed have left.
func sweep(c *client.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	list, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelPID)})
	if err != nil {
		return fmt.Errorf("list leftover containers: %w", err)
	}
	for _, left := range list.Items {
		if !ownerDead(left.Labels) && time.Since(time.Unix(left.Created, 0)) < leftoverAge {
			continue
		}
		if err := removeContainer(ctx, c, left.ID); err != nil {
			return err
		}
	}
	return nil
}

// ownerDead reports whether the process that has started a container is known to have ended.
func ownerDead(labels map[string]string) bool {
	host, err := os.Hostname()
	if err != nil || labels[labelHost] != host {
		return false
	}
	pid, err := strconv.Atoi(labels[labelPID])
	return err == nil && isGone(pid)
}

// removeContainer is docker rm -fv. Another sweep may be faster.
func removeContainer(ctx context.Context, c *client.Client, id string) error {
	_, err := c.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	return nil
}

// findImage returns the image to start, which is then here, or why there is none.
func findImage(sp *spec) (string, error) {
	c, err := docker()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
	defer cancel()
	if image := os.Getenv(sp.imageVariable()); image != "" {
		return image, ensureImage(ctx, c, image)
	}
	if _, err := c.ImageInspect(ctx, sp.builtImage()); err == nil {
		return sp.builtImage(), nil
	}
	return sp.officialImage(), ensureImage(ctx, c, sp.officialImage())
}

func ensureImage(ctx context.Context, c *client.Client, image string) error {
	if _, err := c.ImageInspect(ctx, image); !errdefs.IsNotFound(err) {
		return err
	}
	pull, err := c.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}
	defer pull.Close()
	return pull.Wait(ctx)
}

// container is a server in a container, published at one port of 127.0.0.1.
type container struct {
	client *client.Client
	ctr    *testcontainers.DockerContainer
	port   int // inside
}

// direct is the container's own address, if this machine reaches it.
func (c *container) direct() (addr string, ok bool) {
	err := c.do(func(ctx context.Context, _ string) error {
		ip, err := c.ctr.ContainerIP(ctx)
		if err != nil {
			return err
		}
		addr = net.JoinHostPort(ip, strconv.Itoa(c.port))
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return addr, err == nil
}

func newContainer(sp *spec, image string, port int, args []string, more ...testcontainers.ContainerCustomizer) (control, error) {
	c, err := runContainer(image, append([]testcontainers.ContainerCustomizer{
		testcontainers.WithCmd(sp.command(listen{host: "0.0.0.0", port: sp.port, dir: containerDir}, args)...),
		testcontainers.WithEnv(sp.env),
		testcontainers.WithFiles(containerFiles(sp.files)...),
		testcontainers.WithExposedPorts(strconv.Itoa(sp.port) + "/tcp"),
		testcontainers.WithHostConfigModifier(publish(sp.port, port)),
	}, more...)...)
	if err != nil {
		return nil, err
	}
	c.port = sp.port
	return c, nil
}

// runContainer starts a container that the next sweep removes if this process is killed.
func runContainer(image string, more ...testcontainers.ContainerCustomizer) (*container, error) {
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
	ctr, err := testcontainers.Run(ctx, image,
		append(more, testcontainers.WithLabels(labels), testcontainers.WithHostConfigModifier(share))...)
	if err != nil {
		return nil, errors.Join(err, testcontainers.TerminateContainer(ctr))
	}
	return &container{client: c, ctr: ctr}, nil
}

// serverShares is the weight of a server on the processors. A process has 1024.
const serverShares = 8 * 1024

// processorShare gives a container its own share of the processors. An engine that manages the control groups itself puts
// all containers into one group, and that has the weight of one process: beside ten busy processes, all servers together
// had a tenth of the machine, and a Redis stood still for 11 s. With systemd, containers and users have equal shares.
func processorShare(ctx context.Context, c *client.Client) (func(*dockercontainer.HostConfig), error) {
	result, err := c.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the engine for its control groups: %w", err)
	}
	return func(hc *dockercontainer.HostConfig) {
		if result.Info.CgroupDriver == "cgroupfs" {
			hc.CgroupParent, hc.CPUShares = "/", serverShares
		}
	}, nil
}

// containerFiles puts files into a container, where every user may read them.
func containerFiles(files map[string][]byte) []testcontainers.ContainerFile {
	var all []testcontainers.ContainerFile
	for name, content := range files {
		all = append(all, testcontainers.ContainerFile{
			Reader: bytes.NewReader(content), ContainerFilePath: path.Join(containerDir, name), FileMode: 0o644,
		})
	}
	return all
}

// ownLabels mark what this process has made, for sweep.
func ownLabels() (map[string]string, error) {
	host, err := os.Hostname()
	return map[string]string{labelHost: host, labelPID: strconv.Itoa(os.Getpid())}, err
}

// publish pins a port to one of the loopback interface: an automatic one changes when the container is started again.
func publish(inside, outside int) func(*dockercontainer.HostConfig) {
	loopback := network.PortBinding{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1}), HostPort: strconv.Itoa(outside)}
	return func(hc *dockercontainer.HostConfig) {
		hc.PortBindings = network.PortMap{network.MustParsePort(strconv.Itoa(inside)): {loopback}}
	}
}

// do runs one call of the engine's API on the container, in a goroutine without the labels of a test: the connections that
// it opens outlive the test by the 30 s in which they may be idle, and a case waits for its own goroutines.
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

// commands is how often the engine is asked for a change of state. On a busy machine it fails to
// freeze a container now and then, and succeeds the next time.
const commands = 5

// change is do, repeated until the container is in the state that reached accepts.
func (c *container) change(reached func(*dockercontainer.State) bool, call func(ctx context.Context, id string) error) error {
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

func (c *container) pause() error {
	return c.change(isPaused, func(ctx context.Context, id string) error {
		_, err := c.client.ContainerPause(ctx, id, client.ContainerPauseOptions{})
		return err
	})
}

func (c *container) resume() error {
	return c.change(isRunning, func(ctx context.Context, id string) error {
		_, err := c.client.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
		return err
	})
}

func (c *container) kill() error {
	return c.change(isEnded, func(ctx context.Context, id string) error {
		if _, err := c.client.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return err
		}
		ended := c.client.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: dockercontainer.WaitConditionNotRunning})
		select {
		case <-ended.Result:
			return nil
		case err := <-ended.Error:
			return err
		}
	})
}

func (c *container) start() error {
	return c.change(isRunning, func(ctx context.Context, id string) error {
		_, err := c.client.ContainerStart(ctx, id, client.ContainerStartOptions{})
		return err
	})
}

func (c *container) alive() error {
	return c.do(func(ctx context.Context, _ string) error {
		state, err := c.ctr.State(ctx)
		if err == nil && !state.Running {
			err = fmt.Errorf("the container has ended with %d", state.ExitCode)
		}
		return err
	})
}

func (c *container) remove() error {
	return c.do(func(ctx context.Context, id string) error { return removeContainer(ctx, c.client, id) })
}

func (c *container) logs() string {
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
