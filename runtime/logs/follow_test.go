package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// following follows a log in the background.
type following struct {
	t     *testing.T
	lines *io.PipeReader
	ended chan struct{}
	done  chan error
}

func follow(t *testing.T, path string, o Options) *following {
	t.Helper()
	r, w := io.Pipe()
	f := &following{t: t, lines: r, ended: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		err := Follow(t.Context(), path, Sinks{Stdout: w, Stderr: w}, o, f.ended)
		_ = w.CloseWithError(io.EOF)
		f.done <- err
	}()
	return f
}

// want waits until the text has come.
func (f *following) want(text string) {
	f.t.Helper()
	buf := make([]byte, len(text))
	n, err := io.ReadFull(f.lines, buf)
	if err != nil || string(buf[:n]) != text {
		f.t.Fatalf("got %q, %v, want %q", buf[:n], err, text)
	}
}

// end says that nothing more is written and wants the rest.
func (f *following) end(rest string) {
	f.t.Helper()
	close(f.ended)
	got, err := io.ReadAll(f.lines)
	if err != nil || string(got) != rest {
		f.t.Errorf("at the end got %q, %v, want %q", got, err, rest)
	}
	if err := <-f.done; err != nil {
		f.t.Errorf("Follow: %v", err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	appendTo(t, path, log("oFa"))
	f := follow(t, path, Options{})
	f.want("a\n")
	appendTo(t, path, log("oFb", "oPc"))
	f.want("b\n")
	appendTo(t, path, log("oFd"))
	f.want("cd\n")
	appendTo(t, path, log("oFe"))
	f.end("e\n")
}

func TestFollowAcrossRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	appendTo(t, path+".20260102-030405", log("oFa"))
	appendTo(t, path, log("oFb"))
	f := follow(t, path, Options{})
	f.want("a\nb\n")
	appendTo(t, path, log("oFc"))
	move(t, path, path+".20260102-030406")
	f.want("c\n")
	appendTo(t, path, log("oFd"))
	f.want("d\n")
	move(t, path, path+".20260102-030407")
	appendTo(t, path, log("oFe"))
	move(t, path, path+".20260102-030408")
	appendTo(t, path, log("oFf"))
	f.want("e\nf\n")
	f.end("")
}

// TestFollowWhileRotating: no line is lost however rotations fall between two looks, which
// many rotated files make long.
func TestFollowWhileRotating(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	for i := range 1000 {
		appendTo(t, fmt.Sprintf("%s.20260101-00%02d%02d", path, i/60, i%60), "")
	}
	appendTo(t, path, log("oFbegun"))
	f := follow(t, path, Options{Tail: new(1)})
	f.want("begun\n")
	var want strings.Builder
	go func() {
		for i := range 150 {
			move(t, path, fmt.Sprintf("%s.20260102-00%02d%02d", path, i/60, i%60))
			appendTo(t, path, log(fmt.Sprintf("oF%d", i)))
			time.Sleep(time.Millisecond)
		}
		close(f.ended)
	}()
	for i := range 150 {
		fmt.Fprintln(&want, i)
	}
	got, err := io.ReadAll(f.lines)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestFollowOutlivesRemovedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	appendTo(t, path, log("oFa"))
	f := follow(t, path, Options{})
	f.want("a\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path+".20260102-030407", log("oFb"))
	appendTo(t, path, log("oFc"))
	f.want("b\nc\n")
	f.end("")
}

// TestFollowOneInstance: the log of the next instance is not this one's.
func TestFollowOneInstance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	appendTo(t, filepath.Join(dir, "0.log"), log("oFa", "oPunfinished"))
	f := follow(t, filepath.Join(dir, "0.log"), Options{})
	f.want("a\n")
	appendTo(t, filepath.Join(dir, "1.log"), log("oFb"))
	f.end("unfinished")
}

func TestFollowTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	appendTo(t, path, log("oFa", "oFb", "oFc"))
	f := follow(t, path, Options{Tail: new(2)})
	f.want("b\nc\n")
	appendTo(t, path, log("oFd"))
	f.want("d\n")
	f.end("")
}

func TestFollowMuch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, "")
	f := follow(t, path, Options{})
	w, err := OpenWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	var in, want strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&in, "line %d\n", i)
	}
	w.limit, w.keep = 4<<10, 1000
	want.WriteString(in.String())
	go func() {
		if err := w.Copy(Stdout, strings.NewReader(in.String())); err != nil {
			t.Error(err)
		}
	}()
	f.want(want.String())
	f.end("")
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	appendTo(t, path, "")
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := Follow(ctx, path, Sinks{}, Options{}, nil); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
}

func TestFollowWithoutLog(t *testing.T) {
	t.Parallel()
	err := Follow(t.Context(), filepath.Join(t.TempDir(), "x", "0.log"), Sinks{}, Options{}, nil)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

func TestPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := pollDir()
		defer w.close()
		start := time.Now()
		<-w.tick
		if got := time.Since(start); got != pollPeriod {
			t.Errorf("woke after %v, want %v", got, pollPeriod)
		}
	})
}
