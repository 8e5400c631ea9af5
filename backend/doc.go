// Package backend is the contract between dlock's core and its drivers.
//
// Applications do not need it: they import dlock and the drivers that they use.
// The author of a driver implements [Driver] and those optional interfaces that
// the server can honestly serve, registers an [Opener] for the URL schemes, and
// proves the result with the package conformance.
//
// # Division of work
//
// A driver makes single attempts. The core does everything that takes time, once
// for all drivers:
//
//	driver                                  core
//	one attempt to acquire, renew, release  the loop, backoff, deadlines, retries
//	a hint that another attempt may help    the decision to make it
//	the grant's term as the server gave it  the lease: when it has to end
//	the server's own errors                 wrapping them once, at the border
//	removing what an owner has              deciding what is to be removed
//	nothing                                 local queue, hand-off, reentrancy, events
//
// A driver therefore has no loop that waits for a lock, no retry of a request
// with an unknown outcome, no renewal in the background and no timeout that an
// application has to tune.
//
// # One acquisition
//
// (Key, Owner) names one acquisition. The core draws a new Owner for each, and
// every request is about one owner, never about a name alone. So a late request
// of one acquisition cannot touch the grant of another, and a request may be
// repeated, reordered after its context has ended, or executed late without harm.
//
// An acquisition begins with an Acquire and ends with a Release. Between them the
// core may repeat Acquire, and it renews the grant about every third of the TTL.
// After a Release with an unknown outcome, or a Release of an acquisition with an
// Acquire of unknown outcome, the core repeats the Release; [Capabilities].Late
// limits for how long.
//
// # Three outcomes
//
// Every request that changes something has three outcomes: yes, no and unknown. A
// definite answer is nil or one of the errors that the method lists as definite.
// Any other error means unknown, and the core repeats the request or cleans up
// with Release.
//
// A driver must not guess. ErrUnavailable is a promise that the request was not
// and will not be executed, such as after a refused connection. A timeout or a
// connection that broke after the request was written is neither yes nor no, and
// the driver returns the client library's error as it is.
//
// # Time
//
// The core trusts a grant from [Term].Sent, read before the request was written,
// for the TTL less a margin. A driver must never return a Sent that is later than
// the moment from which the server counts. The server's clock alone decides when
// a grant expires: a driver sends durations, not times, so that clocks of clients
// need not agree.
//
// # Fences
//
// [Grant].Fence is greater than the fences of all earlier exclusive grants of the
// key. It lies below [MaxFence], because the core appends 12 bits for local
// hand-offs. How long fences keep increasing is what [Capabilities].Fencing
// claims.
//
// # Waiting
//
// A hint of [Waiter] may be early, merged or spurious; it must not be missing if
// the lock is released after the answer that Wait was called with. The core polls
// at least every third of the TTL in addition to the hints, so a lost hint costs
// time and never a lock. It does not if [Busy].Reliable says that no hint can be
// lost.
//
// # Contexts
//
// Every method returns as soon as its context ends, even where the client library
// ignores contexts; [Call] does this for a driver. The core gives each request a
// context with a deadline, so a driver needs no further timeouts for correctness.
//
// # Concurrency
//
// All methods of all interfaces are called concurrently, except Close. A driver
// must not hold up the requests for one lock with those for another beyond what
// its connections require, and waiting must never delay a renewal.
//
// # Late and repeated requests
//
// Requests of one owner can be executed in another order than they were sent, and
// after their context has ended. For each pair the result must be safe:
//
//	executed late            after              result
//	Acquire                  Acquire            the same grant, with a longer term
//	Acquire                  Release            a ghost; the core's repeated Release removes it
//	Renew                    a later Renew      the longer term stays
//	Renew, Release           the term's end     no change to the grant of another owner
//	Renew, Downgrade         Export             the ticket stays good
//	Release                  Release            ErrNotHeld
//
// A comparison of the owner and the change it guards must therefore be one atomic
// step on the server: a script, a transaction, or a compare-and-swap.
//
// # Optional interfaces
//
// The core checks once, in dlock.New, which of these a driver implements, and
// works without each of them:
//
//	Waiter        waiters are woken by the server; without it the core polls
//	Pipeliner     the next local waiter does not wait for the answer to a release
//	BatchRenewer  many locks are renewed in one request; without it 16 at a time
//	Combiner      LockAll is one request; without it one for each lock
//	Inspector     Client.Inspect and Client.List
//	Breaker       Client.Break
//	Mover         a grant passes to another process
//	Downgrader    a writer becomes a reader without a gap
//	Watcher       reports changes to Client.Observe; without it the core polls
//
// FenceRaiser and Doctor are reserved: nothing calls them yet.
//
// A type that wraps a driver hides the interfaces that it does not forward.
//
// # Queue entries
//
// A server with a queue keeps an entry for each waiting acquisition, under its
// Owner. An entry has the term of its request, or a shorter one, and each repeated
// Acquire refreshes it; so the entry of a client that died expires. A grant passes to the
// first entry that has not expired. An Acquire without Request.Queue must not
// pass a queue of fair waiters. Release removes an entry just as it removes a
// grant.
//
// The waiters of one client share one entry, because only the front of the
// client's local queue sends requests. When that waiter gives up, the core may
// continue with the same Owner for the next waiter; the driver does not notice.
//
// # Sessions
//
// On a server where grants live with a connection or a session,
// Capabilities.Session is true. The driver then shares few sessions among all
// grants, keeps them alive in the background, and answers Renew with the proof of
// the session. When a session ends, all of its grants are lost: the driver calls
// Request.Lost for each and opens another session for later requests. A session
// that stays silent for a TTL must end on the client's side before the server
// frees its grants.
//
// # Reports of loss
//
// A loss is reported in one of three ways: by the answer to Renew, by the answer
// to Release, or by Request.Lost. A driver that receives messages from the server
// calls Request.Lost as soon as it can attribute a message to an owner. A message
// about an earlier grant of the same key has another owner and must be ignored.
// It is safe to report a loss twice, or after a release.
//
// # Parameters of a URL
//
// An Opener takes its parameters before it connects, so that a misspelt one is
// reported even if the server is down:
//
//	opts := Options{}
//	err := errors.Join(
//		u.TakeDuration("timeout", &opts.Timeout),
//		u.TakeInt("pool", &opts.Pool),
//		u.TakeBool("verify", &opts.Verify),
//	)
//	u.TakeString("table", &opts.Table)
//	if err != nil {
//		return nil, err
//	}
//
// The core has taken prefix, ttl, fair and require before, and refuses what is
// left afterwards. Secrets belong into User and Password, or into a parameter
// with pass, secret, token or credential in its name: [URL.String] hides these.
//
// # Resources
//
// Waiting and holding must stay cheap for a process with ten thousand locks: no
// goroutine, timer or connection for each held lock or waiter. A pool of
// connections has a limit, and renewals do not compete with waiters for its
// connections. A server that sends more than an answer may contain, or an answer
// of another protocol, costs an error and not the memory of the process. After
// Close the driver has no goroutine and no connection left.
//
// # Tests
//
// The package conformance runs against a real server and checks the promises of
// this package, for the raw driver and for the core above it. The test of a
// driver is about ten lines:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t conformance.TB) conformance.Harness { return newHarness(t) })
//	}
//
// # A driver in outline
//
//	func init() { backend.Register("example", open) }
//
//	func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
//		var timeout time.Duration
//		if err := u.TakeDuration("timeout", &timeout); err != nil {
//			return nil, err
//		}
//		conn, err := dial(ctx, u.HostsWithPort("1234"), timeout)
//		if err != nil {
//			return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
//		}
//		return &driver{conn}, nil
//	}
//
//	func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
//		sent := backend.Began(ctx) // before anything is written
//		answer, err := backend.Call(ctx, func(ctx context.Context) (answer, error) {
//			return d.conn.acquire(ctx, req.Key, req.Owner, req.TTL)
//		})
//		switch {
//		case err != nil:
//			return nil, err // the outcome is unknown
//		case !answer.granted:
//			return nil, &backend.Busy{Holder: answer.holder, RetryAfter: answer.rest}
//		}
//		term := backend.Term{Sent: sent, TTL: req.TTL}
//		return &backend.Grant{Request: *req, Term: term, Fence: answer.fence}, nil
//	}
//
// # Common mistakes
//
// The conformance suite checks most of these:
//
//   - A repeated Acquire returns a new Sent, but the server does not prolong the
//     grant.
//   - A timeout is reported as ErrUnavailable, although the request may be
//     executed.
//   - Break or the expiry of a queue entry wakes no waiter.
//   - A key with "%", "_", "*" or "[" in it is read as a pattern by List.
//   - A TTL is rounded down, or overflows the server's number of milliseconds.
//   - A cancelled Wait leaves an entry in a map, a connection or a goroutine.
//   - A pool of connections is used up by waiters, so that renewals wait for
//     them.
//   - RenewAll or List ignores what exceeds the first page of the server's
//     answer.
//
// # Imports
//
// The package imports the standard library alone.
package backend
