package memcachedbackend

import (
	"errors"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"
)

const (
	// controlConns is the number of connections to each server for renewals, releases and moves.
	// Acquisitions never use them, so that waiters cannot delay a renewal.
	controlConns = 8
	// reservedConns is the number of further connections, which only renewals use. Otherwise many
	// releases could delay the renewals of other locks until their leases end.
	reservedConns = 4
)

// server is one of the servers that share the names.
type server struct {
	seed     uint64 // the hash of the address, for the scores
	pool     *pool
	main     lane // all calls but renewals and releases
	control  lane // releases
	renewals lane // it is control with reserved connections
}

func newServer(addr string, opts *Options) *server {
	p := &pool{address: address(addr), opts: opts}
	s := &server{
		seed:    hash(addr),
		pool:    p,
		main:    newLane(p, opts.Conns),
		control: newLane(p, controlConns),
	}
	s.renewals = s.control
	s.renewals.extra = make(slots, reservedConns)
	return s
}

// server returns the server that keeps a name: the one with the highest score for it (rendezvous
// hashing). A server that is added or removed moves only its own names.
//
// All processes must find the same server, also processes with another version of dlock. So the
// scores, and with them normalise, hash and mix, must not change.
func (d *driver) server(name string) *server {
	if len(d.servers) == 1 {
		return d.servers[0]
	}
	best, highest, h := d.servers[0], uint64(0), hash(name)
	for _, s := range d.servers {
		if score := mix(s.seed ^ h); score > highest {
			best, highest = s, score
		}
	}
	return best
}

// normalise returns an equal list for all lists of the same servers: sorted, without duplicates,
// and with hosts in lower case. It returns an error for an empty list.
func normalise(servers []string) ([]string, error) {
	list := make([]string, len(servers))
	for i, server := range servers {
		if list[i] = server; !isSocket(server) {
			list[i] = strings.ToLower(server)
		}
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) == 0 {
		return nil, errors.New("dlock: invalid URL: " +
			"no host, as in memcached://localhost:11211, and no socket=/path")
	}
	return list, nil
}

// listID returns the text that identifies a list of servers in records. It is the same for all
// single servers: a single server keeps all locks, and clients may use different names for it.
func listID(servers []string) string {
	if len(servers) == 1 {
		return "1"
	}
	sorted := slices.Sorted(slices.Values(servers))
	return strconv.FormatUint(hash(strings.Join(sorted, ",")), 36)
}

// hash returns the FNV-1a hash of s.
func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}

// mix spreads a hash over all bits (the finalizer of splitmix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// address is a server as it was written. Each new connection resolves it again, and the server of a
// name does not depend on what a process resolves it to. It implements memcache.ServerSelector for
// this one server.
type address string

// Network implements net.Addr.
func (a address) Network() string {
	if isSocket(string(a)) {
		return "unix"
	}
	return "tcp"
}

// String implements net.Addr.
func (a address) String() string { return string(a) }

// PickServer implements memcache.ServerSelector.
func (a address) PickServer(string) (net.Addr, error) { return a, nil }

// Each implements memcache.ServerSelector.
func (a address) Each(f func(net.Addr) error) error { return f(a) }
