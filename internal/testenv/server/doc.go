// Package server starts one server from a [Recipe], waits until it answers, and controls it. It has
// no knowledge of tests: failures are errors.
//
// # Recipes
//
// A Recipe has the facts about one kind of server: the program with its flags ([runner.Spec]),
// the form of its URL, and a probe. Everything else is in this package and the same for all
// servers:
//
//   - [Recipe.Obtain] uses the server whose URL is in the environment, DLOCK_TEST_NAME_URL.
//     If there is none, it calls [Recipe.Launch].
//   - Launch starts a new server in a container or as a process, whichever exists first. At
//     most one server per processor starts at a time, and only on a calm machine. Another
//     process can take the chosen port before the server does, so there is a second attempt.
//   - A server is ready when its probe succeeds. The probe uses the server's own protocol, because
//     Docker accepts connections before the server does. If the server ends before it is ready, the
//     error has the end of its output.
//
// A Recipe with TLS starts a server that has the files of [pki.ServerTLS] in its data folder, and
// whose probes use TLS.
//
// # Instances
//
// An [Instance] is a running server. Its [Identity] is public to tests, its Control can pause, kill
// and start it. An Instance that was given by URL has no Control.
//
// Package recipe has the recipes of all servers, package group starts several servers that act
// as one.
package server
