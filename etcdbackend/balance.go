package etcdbackend

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// The client library sends requests to the members in turn. A member whose process is stopped keeps
// its connections, so every third request of a client with three endpoints would wait for it until
// gRPC has found out that the connection is dead. An attempt to lock is up to three requests, so
// that several attempts one after the other could meet that member. Therefore the driver leaves out
// a member that did not answer a request in time. With the leader of three members stopped and a
// TTL of 10 s, a waiter got the lock after up to 8.7 s without this.

// policyName is the name of the policy in gRPC, which keeps one list of policies for a program.
const policyName = "dlock_answering_members"

func init() { balancer.Register(policy{}) }

// balanced makes a client use the policy. The resolver of the client library requests round_robin.
func balanced() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + policyName + `": {}}]}`),
	}
}

// policy is round_robin among the members that answer.
type policy struct{}

func (policy) Name() string { return policyName }

func (policy) Build(conn balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return balancer.Get(roundrobin.Name).Build(&members{ClientConn: conn}, opts)
}

// members are the connections of one client.
type members struct {
	balancer.ClientConn
	known sync.Map // the *member of each balancer.SubConn
}

// NewSubConn makes a connection, and forgets it when it is shut down.
func (m *members) NewSubConn(
	addrs []resolver.Address, opts balancer.NewSubConnOptions,
) (conn balancer.SubConn, err error) {
	changed := opts.StateListener
	opts.StateListener = func(s balancer.SubConnState) {
		if s.ConnectivityState == connectivity.Shutdown {
			m.known.Delete(conn)
		}
		changed(s)
	}
	//nolint:staticcheck // it is deprecated for several addresses only; round_robin uses one
	if conn, err = m.ClientConn.NewSubConn(addrs, opts); err == nil {
		m.known.Store(conn, newMember())
	}
	return conn, err
}

// UpdateState passes on a picker that leaves out silent members.
func (m *members) UpdateState(s balancer.State) {
	s.Picker = &picker{turns: s.Picker, known: &m.known}
	m.ClientConn.UpdateState(s)
}

// picker picks the member for each request.
type picker struct {
	turns balancer.Picker // of round_robin
	known *sync.Map
}

// maxTurns limits the search for a member that answers. It is more than the members of a cluster.
const maxTurns = 16

// Pick returns the next member that answers. If none does, it returns a silent one.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	for turn := 1; ; turn++ {
		result, err := p.turns.Pick(info)
		if err != nil {
			return result, err
		}
		known, ok := p.known.Load(result.SubConn)
		if !ok { // it is being shut down
			return result, nil
		}
		if one := known.(*member); turn == maxTurns || !one.isSilent() {
			result.Done = one.done // round_robin has none
			return result, nil
		}
	}
}

// member is what is known of the member at the other end of a connection.
type member struct {
	silent atomic.Int64 // when a request had no answer in time; 0 after an answer
	done   func(balancer.DoneInfo)
}

func newMember() *member {
	m := &member{}
	m.done = m.onDone // one closure for all requests
	return m
}

// onDone records whether the member has answered a request.
func (m *member) onDone(info balancer.DoneInfo) {
	switch {
	case info.BytesReceived:
		m.silent.Store(0)
	case status.Code(info.Err) == codes.DeadlineExceeded:
		m.silent.Store(time.Now().UnixNano())
	}
}

// isSilent reports whether the member did not answer the last request. After a while gRPC has ended
// the connection of a dead member, so that the member has another chance.
func (m *member) isSilent() bool {
	since := m.silent.Load()
	return since != 0 && time.Now().UnixNano()-since < int64(pingTime+pingTimeout)
}
