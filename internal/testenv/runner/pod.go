package runner

import (
	"maps"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
)

// Pod is the network of several members, which have the same address inside and outside of their
// containers.
type Pod struct {
	image string
	// container publishes the ports of the members, which share its loopback interface. It is nil
	// if the members use the network of this machine.
	container *container
}

// NewPod returns a pod for servers from the image s at the given ports. idle is a command in that
// image that keeps running.
func (s Source) NewPod(ports []int, idle []string) (*Pod, error) {
	p := &Pod{image: s.from}
	shared, err := canShareNetwork()
	if err != nil || shared {
		return p, err
	}
	bindings := make(network.PortMap)
	var exposed []string
	for _, p := range ports {
		one := portMap(p, p)
		maps.Copy(bindings, one)
		for port := range one {
			exposed = append(exposed, port.String())
		}
	}
	p.container, err = runContainer(s.from,
		testcontainers.WithCmd(idle...),
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithHostConfigModifier(func(hc *dockercontainer.HostConfig) {
			hc.PortBindings = bindings
		}))
	return p, err
}

// Start starts a member, which listens at the port in sp.
func (p *Pod) Start(sp *Spec) (Control, error) {
	if p.container == nil {
		return sharingContainer(sp, p.image, sp.Port)
	}
	id := p.container.ctr.GetContainerID()
	return startContainer(sp, p.image, inContainer(everywhere, sp.Port),
		testcontainers.WithHostConfigModifier(
			useNetwork(dockercontainer.NetworkMode("container:"+id))))
}

// Remove removes the pod. Its members must have been removed.
func (p *Pod) Remove() error {
	if p.container == nil {
		return nil
	}
	return p.container.Remove()
}
