// Package runner runs a server program, in a container or as a child process. It has no knowledge
// of any product and of tests: a [Spec] describes the program, and failures are errors.
//
// # From a Spec to a running server
//
// [Find] returns the [Source] of a program: a container if Docker answers within 30 seconds and has
// an image or can pull one, otherwise the program on PATH or in /usr/sbin. [Source.Start] starts
// the program at a port of the loopback interface, and returns a [Control]. The program may not be
// ready yet: the caller must probe it.
//
// A process listens at the chosen port itself. So does a container if the Docker engine runs on
// this machine: it uses the machine's network. Elsewhere a container listens at Spec.Port on all of
// its interfaces, and Docker forwards the chosen port to it. The port stays the same when the
// server is killed and started again. All have a folder for data and files, [Listen].Dir, which
// survives a kill.
//
// # Several servers
//
// Members of an ensemble reach each other over a [Network], in addition to their published ports. A
// member that leaves the network is separated from the other members, but not from its clients.
// Members that announce their own addresses to clients are in a [Pod], where these addresses are
// the same inside and outside. Processes need neither: they all use the loopback interface.
//
// # Leftovers
//
// The caller removes what it starts. If this process is killed first:
//
//   - On Linux the kernel kills its child processes. Their folders stay in the folder for temporary
//     files.
//   - Containers and networks have labels with this machine's name and the id of this process. The
//     first use of Docker by another process removes containers of processes that have ended, and
//     containers that are an hour old. The first network that another process creates removes
//     networks of processes that have ended.
//
// The functions may be called from several goroutines. [Close] closes the connection with Docker.
package runner
