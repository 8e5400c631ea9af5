package runner

import (
	"maps"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
)

// Pod is a container that only publishes ports. The members share its loopback interface, so they
// have the same address inside and outside.
type Pod struct {
	image     string
	container *container
}

// NewPod starts a pod from the image s. idle is a command in that image that keeps running. The
// pod publishes each port at the same port of this machine.
func (s Source) NewPod(ports []int, idle []string) (*Pod, error) {
	bindings := make(network.PortMap)
	var exposed []string
	for _, p := range ports {
		one := portMap(p, p)
		maps.Copy(bindings, one)
		for port := range one {
			exposed = append(exposed, port.String())
		}
	}
	c, err := runContainer(s.from,
		testcontainers.WithCmd(idle...),
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithHostConfigModifier(func(hc *dockercontainer.HostConfig) {
			hc.PortBindings = bindings
		}))
	if err != nil {
		return nil, err
	}
	return &Pod{image: s.from, container: c}, nil
}

// Start starts a member, which listens at the port in sp.
func (p *Pod) Start(sp *Spec) (Control, error) {
	c, err := runContainer(p.image,
		testcontainers.WithCmd(sp.command(insideContainer(sp.Port))...),
		testcontainers.WithHostConfigModifier(func(hc *dockercontainer.HostConfig) {
			id := p.container.ctr.GetContainerID()
			hc.NetworkMode = dockercontainer.NetworkMode("container:" + id)
		}))
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Remove removes the pod. Its members must have been removed.
func (p *Pod) Remove() error { return p.container.Remove() }
