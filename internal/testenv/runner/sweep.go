package runner

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// leftoverAge is the age at which a container is removed although its process may still run, for
// example on another machine with the same Docker.
const leftoverAge = time.Hour

// Labels of containers and networks.
const (
	labelHost = "dlock.test.host" // of the process that started it
	labelPID  = "dlock.test.pid"
)

// ownLabels returns labels that mark a container or network of this process, for the sweeps of
// later processes.
func ownLabels() (map[string]string, error) {
	host, err := os.Hostname()
	return map[string]string{labelHost: host, labelPID: strconv.Itoa(os.Getpid())}, err
}

// isOwnerDead reports whether the process that started a container or network has certainly ended.
func isOwnerDead(labels map[string]string) bool {
	host, err := os.Hostname()
	if err != nil || labels[labelHost] != host {
		return false
	}
	pid, err := strconv.Atoi(labels[labelPID])
	return err == nil && isGone(pid)
}

// ofTests selects containers or networks that tests have started.
func ofTests() client.Filters { return client.Filters{}.Add("label", labelPID) }

// sweepContainers removes the containers of killed runs.
func sweepContainers(c *client.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	list, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ofTests()})
	if err != nil {
		return fmt.Errorf("list leftover containers: %w", err)
	}
	for _, left := range list.Items {
		if !isOwnerDead(left.Labels) && time.Since(time.Unix(left.Created, 0)) < leftoverAge {
			continue
		}
		if err := removeContainer(ctx, c, left.ID); err != nil {
			return err
		}
	}
	return nil
}

// removeContainer is docker rm -fv. It returns nil if another sweep removes the container at the
// same time.
func removeContainer(ctx context.Context, c *client.Client, id string) error {
	_, err := c.ContainerRemove(ctx, id,
		client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	return nil
}

// sweepNetworks removes the networks of killed runs.
func sweepNetworks(ctx context.Context, c *client.Client) error {
	left, err := c.NetworkList(ctx, client.NetworkListOptions{Filters: ofTests()})
	if err != nil {
		return fmt.Errorf("list leftover networks: %w", err)
	}
	for _, n := range left.Items {
		if isOwnerDead(n.Labels) {
			// It may fail, because another process may remove the network first.
			_, _ = c.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
		}
	}
	return nil
}
