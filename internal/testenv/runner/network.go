package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// Network is the network between members in containers. Their addresses in it are fixed. Clients
// reach the members over another network, so a member that leaves this one is partitioned.
type Network struct {
	client *client.Client
	id     string
	subnet netip.Prefix
}

// NewNetwork creates a network, and removes the networks of killed runs.
func NewNetwork() (*Network, error) {
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
	if err := sweepNetworks(ctx, c); err != nil {
		return nil, err
	}
	free, err := freeSubnet(ctx, c, labels)
	if err != nil {
		return nil, err
	}
	created, err := c.NetworkCreate(ctx, networkName(), client.NetworkCreateOptions{
		Internal: true, Labels: labels,
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: free}}},
	})
	if err != nil {
		return nil, fmt.Errorf("create a network: %w", err)
	}
	return &Network{client: c, id: created.ID, subnet: free}, nil
}

func networkName() string { return "dlock-test-" + strings.ToLower(rand.Text()) }

// freeSubnet returns a subnet that Docker has chosen. Docker gives containers fixed addresses only
// in an explicit subnet.
func freeSubnet(
	ctx context.Context, c *client.Client, labels map[string]string,
) (netip.Prefix, error) {
	chosen, err := c.NetworkCreate(ctx, networkName(),
		client.NetworkCreateOptions{Internal: true, Labels: labels})
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("create a network: %w", err)
	}
	info, err := c.NetworkInspect(ctx, chosen.ID, client.NetworkInspectOptions{})
	_, removed := c.NetworkRemove(ctx, chosen.ID, client.NetworkRemoveOptions{})
	if err := errors.Join(err, removed); err != nil {
		return netip.Prefix{}, err
	}
	for _, config := range info.Network.IPAM.Config {
		if config.Subnet.Addr().Is4() {
			return config.Subnet, nil
		}
	}
	return netip.Prefix{}, errors.New("the Docker engine has chosen no subnet")
}

// Address returns the address of the nth member. Docker uses the first addresses itself.
func (n *Network) Address(member int) netip.Addr {
	addr := n.subnet.Masked().Addr()
	for range 10 + member {
		addr = addr.Next()
	}
	return addr
}

// Start is [Source.Start] for the nth member, which joins n before it starts. s must be a
// container. The container is also in the network that publishes its port.
func (n *Network) Start(s Source, sp *Spec, port, member int) (Control, error) {
	return publishedContainer(sp, s.from, port, testcontainers.WithAdditionalLifecycleHooks(
		testcontainers.ContainerLifecycleHooks{PreStarts: []testcontainers.ContainerHook{
			func(ctx context.Context, c testcontainers.Container) error {
				return n.join(ctx, c.GetContainerID(), member)
			},
		}},
	))
}

// Leave takes a member that [Network.Start] started out of n.
func (n *Network) Leave(c Control) error {
	return c.(*container).do(func(ctx context.Context, id string) error {
		_, err := n.client.NetworkDisconnect(ctx, n.id,
			client.NetworkDisconnectOptions{Container: id})
		return err
	})
}

// Join undoes Leave. c must be the nth member.
func (n *Network) Join(c Control, member int) error {
	return c.(*container).do(func(ctx context.Context, id string) error {
		return n.join(ctx, id, member)
	})
}

func (n *Network) join(ctx context.Context, container string, member int) error {
	_, err := n.client.NetworkConnect(ctx, n.id, client.NetworkConnectOptions{
		Container: container,
		EndpointConfig: &network.EndpointSettings{
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: n.Address(member)},
		},
	})
	return err
}

// Remove removes the network. Its members must have been removed.
func (n *Network) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	_, err := n.client.NetworkRemove(ctx, n.id, client.NetworkRemoveOptions{})
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove a network: %w", err)
	}
	return nil
}
