package portforward

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Destination is what connections are passed on to.
type Destination interface {
	// Port returns the number of one of its TCP ports, which may be given by its name.
	Port(remote intstr.IntOrString) (int32, error)
	// Dial connects to one of its ports. The caller closes the connection. If it has a method CloseWrite, that ends
	// what is written to it, and otherwise Close does, after which it can still be read.
	Dial(ctx context.Context, port int32) (io.ReadWriteCloser, error)
	// Lost returns why it cannot be reached any more, nil if it can.
	Lost(ctx context.Context) error
}

// lookInterval is how often a destination is looked at.
const lookInterval = time.Second

// Serve passes the connections to the listeners on until the destination is lost, which is the error, or ctx is done.
// It closes the listeners and the connections. failed is called with each connection that could not be passed on.
func Serve(ctx context.Context, listeners []Listener, to Destination, failed func(l Listener, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	for _, l := range listeners {
		work.Go(func() {
			cancel(accept(ctx, l, &work, func(conn net.Conn) {
				if err := pass(ctx, conn, to, l.Remote); err != nil && !errors.Is(err, context.Cause(ctx)) {
					failed(l, err)
				}
			}))
		})
	}
	err := await(ctx, to)
	cancel(err)
	err = context.Cause(ctx)
	_ = closeAll(listeners)
	work.Wait()
	return err
}

// await waits until the destination is lost, or ctx is done.
func await(ctx context.Context, to Destination) error {
	for {
		if err := to.Lost(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookInterval):
		}
	}
}

// accept accepts connections until the listener is closed.
func accept(ctx context.Context, l Listener, work *sync.WaitGroup, pass func(net.Conn)) error {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			work.Go(func() { pass(conn) })
		case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			return err
		default: // as when there are too many open files
			time.Sleep(lookInterval)
		}
	}
}

// pass passes a connection on. That one side has broken it off is no error, since the other side learns that.
func pass(ctx context.Context, conn net.Conn, to Destination, port int32) error {
	remote, err := to.Dial(ctx, port)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	err = Join(ctx, conn, remote)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Join copies what comes from each of two connections to the other one, until both have ended or one has failed or ctx
// is done. The end of what comes from one is passed on to the other. Both are closed then. It returns the first error.
func Join(ctx context.Context, a, b io.ReadWriteCloser) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(ctx, func() { _, _ = a.Close(), b.Close() })()
	var work sync.WaitGroup
	for _, way := range [][2]io.ReadWriteCloser{{a, b}, {b, a}} {
		work.Go(func() {
			if _, err := io.Copy(way[0], way[1]); err != nil {
				cancel(err)
				return
			}
			closeWrite(way[0])
		})
	}
	work.Wait()
	err := context.Cause(ctx)
	cancel(nil)
	_, _ = a.Close(), b.Close()
	return err
}

// closeWrite ends what is written to a connection.
func closeWrite(c io.WriteCloser) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = c.Close()
}
