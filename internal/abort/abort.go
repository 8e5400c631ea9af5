// Package abort ends network connections at once. When a program closes a connection, its kernel
// goes on sending what the peer has not acknowledged, for up to some minutes. The peer could then
// execute a request long after the client has given it up.
package abort

import "net"

// OnClose makes Close discard what the kernel has not sent. The peer sees a reset. OnClose has no
// effect on a connection that is not TCP.
func OnClose(conn net.Conn) {
	if tcp, ok := innermost(conn).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// Close ends a connection, and discards what the kernel has not sent. It does not block. If the
// connection is a layer over another one, such as TLS, Close ends only the innermost one.
func Close(conn net.Conn) error {
	OnClose(conn)
	return innermost(conn).Close()
}

// innermost returns the connection under all layers that have a method NetConn, as TLS does.
func innermost(conn net.Conn) net.Conn {
	for {
		layer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = layer.NetConn()
	}
}
