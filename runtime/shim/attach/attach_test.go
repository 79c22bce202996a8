package attach_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/runonce/runonce/runtime/shim/attach"
)

// serve serves a container and returns the socket, and what writes its standard output.
func serve(t *testing.T, input *attach.Input) (path string, out *io.PipeWriter, copied <-chan struct{}) {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "a", "socket")
	server, err := attach.Listen(path, input)
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, server.Tee(r, attach.Stdout))
		_ = server.Close()
	}()
	return path, w, done
}

// TestOutput: each client gets what is written from the time on at which it takes part.
func TestOutput(t *testing.T) {
	t.Parallel()
	path, w, copied := serve(t, nil)
	early := strings.Repeat("early", 20_000)
	if _, err := io.WriteString(w, early); err != nil {
		t.Fatal(err)
	}
	var client sync.WaitGroup
	var got bytes.Buffer
	begun := make(chan struct{})
	client.Go(func() {
		if err := attach.Connect(t.Context(), path, attach.Streams{Stdout: &got, Begun: func() { close(begun) }}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	for range 1000 {
		if _, err := io.WriteString(w, "late"); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	<-copied
	client.Wait()
	// What was written last may be on its way still.
	if got := got.String(); !strings.HasSuffix(got, strings.Repeat("late", 1000)) || len(got) > len(early)/2 {
		t.Errorf("%d bytes", len(got))
	}
	if err := attach.Connect(t.Context(), path, attach.Streams{}); err == nil {
		t.Error("attached to what has ended")
	}
}

// input is that of a container.
type input struct {
	bytes.Buffer
	closed chan struct{}
}

// TestInputOnce: the input ends with the first client that has one, and not with one that has none.
func TestInputOnce(t *testing.T) {
	t.Parallel()
	in := &input{closed: make(chan struct{})}
	path, w, _ := serve(t, &attach.Input{Writer: in, End: func() { close(in.closed) }})
	ctx, cancel := context.WithCancel(t.Context())
	if err := attach.Connect(ctx, path, attach.Streams{Begun: cancel}); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that is canceled: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		<-in.closed
		_ = w.Close()
	}()
	if err := attach.Connect(t.Context(), path, attach.Streams{Stdin: strings.NewReader("hello"), InputEnded: func() { close(ended) }}); err != nil {
		t.Error(err)
	}
	<-ended
	if got := in.String(); got != "hello" {
		t.Errorf("input %q", got)
	}
}

// TestLost: a connection that ends before the output does is an error.
func TestLost(t *testing.T) {
	t.Parallel()
	path, w, _ := serve(t, nil)
	defer func() { _ = w.Close() }()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = conn.Close()
		}
	}()
	if err := attach.Connect(t.Context(), path, attach.Streams{}); err == nil {
		t.Error("no error")
	}
}
