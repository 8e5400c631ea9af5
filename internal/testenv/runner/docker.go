package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"

	"github.com/dlock-go/dlock/internal/testenv/images"
)

const (
	dockerTimeout = 30 * time.Second
	pullTimeout   = 5 * time.Minute
)

// dockerClient is created at the first use and closed by Close.
var dockerClient struct {
	sync.Mutex
	*client.Client
	err error
}

// docker returns a client if Docker answers within dockerTimeout. Only the first call waits.
func docker() (*client.Client, error) {
	dockerClient.Lock()
	defer dockerClient.Unlock()
	if dockerClient.Client == nil && dockerClient.err == nil {
		dockerClient.Client, dockerClient.err = connectDocker()
	}
	return dockerClient.Client, dockerClient.err
}

// Close closes the connection with Docker. The next use of Docker connects again.
func Close() {
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
	return c, sweepContainers(c)
}

// configureTestcontainers sets environment variables that testcontainers reads only once, at its
// first call.
func configureTestcontainers(ctx context.Context, c *client.Client) error {
	var errs []error
	// Without the image of the reaper of testcontainers, every start would fail. sweepContainers
	// does the reaper's work.
	if _, err := c.ImageInspect(
		ctx, testcontainers.ReaperDefaultImage, //nolint:staticcheck // it has the version
	); errdefs.IsNotFound(err) {
		errs = append(errs, os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"))
	}
	// If /.dockerenv exists, testcontainers uses the gateway's address for published ports. But
	// Docker publishes them on the machine that has its socket.
	_, inContainer := os.Stat("/.dockerenv")
	_, chosen := os.LookupEnv("TESTCONTAINERS_HOST_OVERRIDE")
	if inContainer == nil && !chosen && strings.HasPrefix(c.DaemonHost(), "unix://") {
		errs = append(errs, os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1"))
	}
	return errors.Join(errs...)
}

// canShareNetwork reports whether containers can use the network of this machine. For that, the
// Docker engine must run on the same kernel, which it does not in a virtual machine, and as root.
func canShareNetwork() (bool, error) {
	c, err := docker()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	engine, err := c.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, fmt.Errorf("read Docker's kernel: %w", err)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return false, nil //nolint:nilerr // this machine has no Linux
	}
	return strings.HasPrefix(c.DaemonHost(), "unix://") &&
		engine.Info.KernelVersion == strings.TrimSpace(string(kernel)) &&
		!slices.Contains(engine.Info.SecurityOptions, "name=rootless"), nil
}

// findImage returns the image to start, and pulls it if necessary. The error describes why there is
// none.
func findImage(name string) (string, error) {
	c, err := docker()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pullTimeout)
	defer cancel()
	if image := os.Getenv(images.Variable(name)); image != "" {
		return image, ensureImage(ctx, c, image)
	}
	if _, err := c.ImageInspect(ctx, images.Built(name)); err == nil {
		return images.Built(name), nil
	}
	official, err := images.Official(name)
	if err != nil {
		return "", fmt.Errorf("the server has no folder in internal/testenv/images: %w", err)
	}
	return official, ensureImage(ctx, c, official)
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
