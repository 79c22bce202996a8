package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/shim/attach"
	"github.com/runonce/runonce/runtime/shim/protocol"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// drainTimeout bounds the wait for the end of an ended process's output: a process of
// another container of the pod may hold the pipe when they share a PID namespace. A deletion
// waits for it, and containerd gives a deletion 5 s when it finds a leaked shim.
const drainTimeout = 4 * time.Second

// streams are a process's input and output.
type streams struct {
	theirs  []*os.File // standard input, output and error, until the process has them
	held    []*os.File // ends of FIFOs that stay open while the process runs
	in      *os.File   // keeps the input open
	pipes   []*os.File // ends of the pipes of its output, until they are copied
	log     *logs.Writer
	out     protocol.Output // with the log
	attach  *attach.Server  // nil for none
	copies  sync.WaitGroup
	console *os.File // the terminal's other side
	socket  *net.UnixListener
}

// owner is who the pipes belong to: the root user of a user namespace.
type owner struct{ uid, gid int }

// openStreams opens the streams for URIs of ours, the paths of FIFOs or files, or nothing.
func openStreams(ctx context.Context, io ttrpc.Stdio, o owner) (_ *streams, err error) {
	s := &streams{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if out, ok := protocol.ParseOutput(io.Stdout); ok && out.LogPath != "" {
		if s.log, err = out.OpenLog(); err != nil {
			return nil, err
		}
		s.out = out
	}
	if io.Terminal {
		return s, s.listen(ctx)
	}
	if err := s.openInput(io.Stdin, o); err != nil {
		return nil, err
	}
	for _, stream := range []struct{ name, uri string }{{"stdout", io.Stdout}, {"stderr", io.Stderr}} {
		if err := s.openOutput(stream.uri, o); err != nil {
			return nil, fmt.Errorf("opening %s: %w", stream.name, err)
		}
	}
	return s, nil
}

func (s *streams) openInput(uri string, o owner) error {
	switch uri {
	case "":
		return s.give(os.Open(os.DevNull))
	case protocol.Stdin:
		r, w, err := pipe(o)
		if err != nil {
			return err
		}
		s.in = w
		return s.give(r, nil)
	}
	// Opened for both first, since nobody may have opened it for writing.
	both, err := os.OpenFile(uri, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("opening stdin: %w", err)
	}
	defer func() { _ = both.Close() }()
	if s.in, err = os.OpenFile(uri, os.O_WRONLY|syscall.O_NONBLOCK, 0); err != nil {
		return fmt.Errorf("opening stdin: %w", err)
	}
	return s.give(os.Open(uri))
}

func (s *streams) openOutput(uri string, o owner) error {
	if s.log != nil {
		r, w, err := pipe(o)
		if err != nil {
			return err
		}
		s.pipes = append(s.pipes, r)
		return s.give(w, nil)
	}
	if _, ours := protocol.ParseOutput(uri); ours || uri == "" {
		return s.give(os.OpenFile(os.DevNull, os.O_WRONLY, 0))
	}
	f, err := s.openSink(uri)
	return s.give(f, err)
}

// openSink opens a FIFO or a file to write to.
func (s *streams) openSink(uri string) (*os.File, error) {
	if path, ok := strings.CutPrefix(uri, "file://"); ok {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	}
	if !filepath.IsAbs(uri) {
		return nil, ttrpc.Errorf(ttrpc.InvalidArgument, "%q is not supported", uri)
	}
	info, err := os.Stat(uri)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeNamedPipe != 0 {
		// The process that reads may have been killed: then opening it for writing would block,
		// and writing would kill the process.
		r, err := os.OpenFile(uri, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		s.held = append(s.held, r)
	}
	return os.OpenFile(uri, os.O_WRONLY|os.O_APPEND, 0)
}

func pipe(o owner) (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err == nil && o != (owner{}) {
		err = r.Chown(o.uid, o.gid) // one file has both ends
	}
	return r, w, err
}

func (s *streams) give(f *os.File, err error) error {
	if err == nil {
		s.theirs = append(s.theirs, f)
	}
	return err
}

// listen makes the socket to which the OCI runtime sends the terminal.
func (s *streams) listen(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "runonce-pty-")
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "s"))
	if err != nil {
		_ = os.Remove(dir)
		return err
	}
	s.socket, _ = l.(*net.UnixListener)
	for range 3 {
		if err := s.give(os.OpenFile(os.DevNull, os.O_RDWR, 0)); err != nil {
			return err
		}
	}
	return nil
}

// args are those of the OCI runtime for the streams.
func (s *streams) args() []string {
	if s.socket == nil {
		return nil
	}
	return []string{"--console-socket", s.socket.Addr().String()}
}

// begin lets the streams end with the process, which has them now, and copies its output. Not
// before, since an OCI runtime that fails writes there as well.
func (s *streams) begin(io ttrpc.Stdio) error {
	closeAll(s.theirs)
	s.theirs = nil
	if s.socket == nil {
		if err := s.serve(s.in, s.out.InputOnce); err != nil {
			return err
		}
	}
	for i, r := range s.pipes {
		s.copies.Go(func() {
			defer func() { _ = r.Close() }()
			// A log that cannot be written must not stop the container.
			_ = s.log.Copy([]string{"stdout", "stderr"}[i], s.attach.Tee(r, []byte{attach.Stdout, attach.Stderr}[i]))
		})
	}
	s.pipes = nil
	if s.socket == nil {
		return nil
	}
	defer s.closeSocket()
	var err error
	if s.console, err = receive(s.socket); err != nil {
		return fmt.Errorf("receiving the terminal: %w", err)
	}
	return s.copyConsole(io)
}

// serve lets others attach to the streams, if they may. The input ends with the first of them who has one, or never.
func (s *streams) serve(input *os.File, once bool) (err error) {
	if s.out.AttachPath == "" {
		return nil
	}
	var in *attach.Input
	if s.out.Input && input != nil {
		in = &attach.Input{Writer: input}
		if once {
			in.End = func() { _ = input.Close() }
		}
	}
	if s.attach, err = attach.Listen(s.out.AttachPath, in); err != nil {
		return fmt.Errorf("listening for who attaches: %w", err)
	}
	return nil
}

// copyConsole copies between the terminal and the streams.
func (s *streams) copyConsole(stdio ttrpc.Stdio) error {
	if s.log != nil {
		if err := s.serve(s.console, false); err != nil { // a terminal has no end
			return err
		}
		s.copies.Go(func() { _ = s.log.Copy("stdout", s.attach.Tee(s.console, attach.Stdout)) })
	} else {
		sink := io.Discard
		if _, ours := protocol.ParseOutput(stdio.Stdout); !ours && stdio.Stdout != "" {
			f, err := s.openSink(stdio.Stdout)
			if err != nil {
				return err
			}
			s.held = append(s.held, f)
			sink = f
		}
		s.copies.Go(func() { _, _ = io.Copy(sink, s.console) })
	}
	if stdio.Stdin == "" || stdio.Stdin == protocol.Stdin {
		return nil
	}
	in, err := os.OpenFile(stdio.Stdin, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	s.held = append(s.held, in)
	go func() { _, _ = io.Copy(s.console, in) }()
	return nil
}

// receive receives a terminal.
func receive(l *net.UnixListener) (*os.File, error) {
	if err := l.SetDeadline(time.Now().Add(drainTimeout)); err != nil {
		return nil, err
	}
	conn, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	name, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(name, rights)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d control messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("%d files: %w", len(fds), err)
	}
	unix.CloseOnExec(fds[0])
	// Before it becomes a file, which then does not block a thread.
	err = unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "terminal"), err
}

// drain waits until everything is in the log file, at most for the time given.
func (s *streams) drain(most time.Duration) {
	done := make(chan struct{})
	go func() { s.copies.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(most):
	}
}

func (s *streams) closeSocket() {
	if s.socket != nil {
		path := s.socket.Addr().String()
		_ = s.socket.Close()
		_ = os.RemoveAll(filepath.Dir(path))
		s.socket = nil
	}
}

// closeInput ends the process's input. It may be repeated.
func (s *streams) closeInput() { closeAll([]*os.File{s.in}) }

// close closes everything, and the log once it is complete.
func (s *streams) close() {
	s.closeInput()
	s.closeSocket()
	closeAll(slices.Concat(s.theirs, s.held, s.pipes, []*os.File{s.console}))
	s.theirs, s.held, s.pipes, s.console = nil, nil, nil, nil
	if log, attached := s.log, s.attach; log != nil {
		s.log = nil
		go func() {
			s.copies.Wait()
			_, _ = log.Close(), attached.Close()
		}()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// resize sets the size of the terminal, if there is one.
func (s *streams) resize(width, height uint32) error {
	if s == nil || s.console == nil {
		return nil
	}
	raw, err := s.console.SyscallConn()
	if err != nil {
		return err
	}
	size := unix.Winsize{Col: uint16(width), Row: uint16(height)}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	return errors.Join(err, failed)
}
