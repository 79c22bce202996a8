// Package attach lets processes of this machine take part in the input and the output of a container while it runs. The
// shim, or the logger of a third-party shim, serves a socket for each container with an input or a terminal.
//
// A client first sends one byte, which says what it wants. What it sends from then on is input, until it closes its
// side for writing or the connection. It gets frames: one byte for the stream, four for the size of the data
// (big-endian), and the data. An empty frame of the stream 3 says that it takes part, and one of the stream 0 is the end
// of the output.
package attach

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// wantInput is a bit of the first byte: the client sends input.
	wantInput = 1
	// writeTimeout is how long the container may wait for a client that does not read before that is disconnected. A
	// client that stays must not stop the container.
	writeTimeout = 10 * time.Second
	// helloTimeout bounds the wait for what a client wants.
	helloTimeout = 10 * time.Second
)

// The streams of frames.
const (
	end    byte = 0
	Stdout byte = 1
	Stderr byte = 2
	begun  byte = 3
)

const headerSize = 5

// Input is where the input of a container goes.
type Input struct {
	io.Writer
	// End ends the input with that of the first client that sends some, and may be called again; nil has it stay open.
	End func()
}

// Server passes the output of a container on to its clients, and their input to the container. It is safe for
// concurrent use.
type Server struct {
	listener net.Listener
	input    *Input

	mu      sync.Mutex
	clients map[net.Conn]struct{}
	closed  bool
}

// Listen serves clients at the path, whose directory it makes. input may be nil for a container without one. The caller
// closes the server when the output has ended.
func Listen(path string, input *Input) (*Server, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &Server{listener: l, input: input, clients: map[net.Conn]struct{}{}}
	go s.accept()
	return s, nil
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		go s.serve(conn)
	}
}

// serve has a client take part until it sends no more.
func (s *Server) serve(conn net.Conn) {
	hello := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	if _, err := io.ReadFull(conn, hello); err != nil || !s.add(conn) {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if s.input == nil || hello[0]&wantInput == 0 {
		_, _ = io.Copy(io.Discard, conn)
		return
	}
	_, _ = io.Copy(s.input, conn)
	if s.input.End != nil {
		s.input.End()
	}
}

// add adds a client. It reports false if there will be no more output.
func (s *Server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := frame(begun, nil)
	if s.closed {
		first = append(first, frame(end, nil)...)
	}
	if !s.send(conn, first) || s.closed {
		return false
	}
	s.clients[conn] = struct{}{}
	return true
}

// Tee returns a reader that passes what is read from one of the streams of output on to the clients. A nil server has
// none.
func (s *Server) Tee(r io.Reader, stream byte) io.Reader {
	if s == nil {
		return r
	}
	return io.TeeReader(r, output{s, stream})
}

type output struct {
	s      *Server
	stream byte
}

func (o output) Write(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	o.s.write(frame(o.stream, data))
	return len(data), nil
}

func frame(stream byte, data []byte) []byte {
	f := make([]byte, headerSize, headerSize+len(data))
	f[0] = stream
	binary.BigEndian.PutUint32(f[1:], uint32(len(data)))
	return append(f, data...)
}

func (s *Server) write(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.clients {
		if !s.send(conn, frame) {
			delete(s.clients, conn)
			_ = conn.Close()
		}
	}
}

// send sends frames to a client, and reports whether it has taken them.
func (*Server) send(conn net.Conn, frames []byte) bool {
	_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := conn.Write(frames)
	return err == nil
}

// Close ends the connections, after the output. A nil server has none.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for conn := range s.clients {
		s.send(conn, frame(end, nil))
		_ = conn.Close()
	}
	clear(s.clients)
	return s.listener.Close()
}
