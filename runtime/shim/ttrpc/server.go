package ttrpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Handler answers a call of a method. The context ends with the connection, or at the time
// that the caller gives.
type Handler func(ctx context.Context, method string, payload []byte) (Message, error)

// Server serves the task service.
type Server struct {
	// Handle answers the calls, several at a time.
	Handle Handler
	// Idle is called whenever the last connection has been closed.
	Idle func()

	calls sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns int        // open connections
}

// services are the versions of the task service, which do not differ in their messages.
var services = map[string]bool{"containerd.task.v2.Task": true, "containerd.task.v3.Task": true}

// Serve serves the connections of a listener until that is closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // too many open files, for example
			continue
		}
		s.mu.Lock()
		s.conns++
		s.mu.Unlock()
		go s.serve(ctx, conn)
	}
}

// Connections returns how many connections there are.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// Drain waits until all calls are answered, at most for the time given.
func (s *Server) Drain(most time.Duration) {
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(most):
	}
}

// connectionKey is the key of the context that ends with a call's connection alone.
type connectionKey struct{}

// Disconnected is closed when the connection ends over which a Handler with this context was called.
func Disconnected(ctx context.Context) <-chan struct{} {
	connection, ok := ctx.Value(connectionKey{}).(context.Context)
	if !ok {
		return nil
	}
	return connection.Done()
}

func (s *Server) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	ctx = context.WithValue(ctx, connectionKey{}, ctx)
	defer func() {
		cancel()
		_ = conn.Close()
		s.mu.Lock()
		s.conns--
		last := s.conns == 0
		s.mu.Unlock()
		if last {
			s.Idle()
		}
	}()
	var writes sync.Mutex
	for {
		f, ok, err := readFrame(conn)
		if err != nil {
			return
		}
		if f.kind != request {
			continue // for streams, which no method has
		}
		s.calls.Go(func() {
			var a reply
			if ok {
				a = s.answer(ctx, f.data)
			} else {
				a.status = Error{ResourceExhausted, "the request is too large"}
			}
			writes.Lock()
			defer writes.Unlock()
			_ = writeFrame(conn, frame{f.stream, response, Marshal(&a)})
		})
	}
}

func (s *Server) answer(ctx context.Context, data []byte) reply {
	var c call
	if err := Unmarshal(data, &c); err != nil {
		return reply{status: Error{InvalidArgument, err.Error()}}
	}
	if !services[c.service] {
		return reply{status: Error{Unimplemented, "service " + c.service + " is not implemented"}}
	}
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.timeout))
		defer cancel()
	}
	m, err := s.Handle(ctx, c.method, c.payload)
	if err != nil {
		return reply{status: statusOf(err)}
	}
	return reply{payload: Marshal(m)}
}

func statusOf(err error) Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return Error{e.Code, err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return Error{DeadlineExceeded, err.Error()}
	}
	return Error{Unknown, err.Error()}
}

// Call calls a method over a connection that has no other call, and drops the answer's payload.
func Call(conn net.Conn, stream uint32, service, method string, m Message) error {
	c := call{service: service, method: method, payload: Marshal(m)}
	if err := writeFrame(conn, frame{stream, request, Marshal(&c)}); err != nil {
		return err
	}
	f, _, err := readFrame(conn)
	if err != nil {
		return err
	}
	var r reply
	if err := Unmarshal(f.data, &r); err != nil {
		return err
	}
	if r.status.Code != 0 {
		return &r.status
	}
	return nil
}
