package serve

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
)

// connections accepts no more of them than there may be. Clients that have not shown yet that they may ask have a share
// of their own: when it is used up, the oldest of them is disconnected, so that they cannot keep anybody out.
type connections struct {
	net.Listener

	mu        sync.Mutex // guards the rest
	open      int
	strangers []*connection // in the order in which they came
}

// connection is one of them.
type connection struct {
	net.Conn
	all   *connections
	close func() error // closes it once
}

// Accept implements net.Listener.
func (all *connections) Accept() (net.Conn, error) {
	for {
		conn, err := all.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: conn, all: all}
		c.close = sync.OnceValue(func() error {
			all.remove(c)
			return conn.Close()
		})
		oldest, ok := all.add(c)
		if oldest != nil {
			_ = oldest.Close()
		}
		if ok {
			return c, nil
		}
		_ = conn.Close()
	}
}

// add adds a connection if there is room. It returns the one that has to go for it, if any.
func (all *connections) add(c *connection) (oldest *connection, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.strangers) == maxStrangers || all.open == maxConnections {
		if len(all.strangers) == 0 {
			return nil, false
		}
		oldest = all.strangers[0]
	}
	all.open++
	all.strangers = append(all.strangers, c)
	return oldest, true
}

func (all *connections) remove(c *connection) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open--
	all.forget(c)
}

// forget takes a connection from the share of strangers.
func (all *connections) forget(c *connection) {
	if i := slices.Index(all.strangers, c); i >= 0 {
		all.strangers = slices.Delete(all.strangers, i, i+1)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error { return c.close() }

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// withConnection returns the context of the requests of a connection.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// know records that the client of the request may ask.
func know(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		c.all.forget(c)
	}
}
