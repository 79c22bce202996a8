package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
)

// slowly passes a text on in small pieces with pauses.
type slowly struct{ bytes.Buffer }

func (s *slowly) Write(p []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return s.Buffer.Write(p)
}

// TestFollowLogs: of jobs that print a lot and end, every line is shown, whole and in order, before the report is
// printed, also to a reader that is slow.
func TestFollowLogs(t *testing.T) {
	const lines = 10_000
	test := func(t *testing.T, b *box) {
		t.Helper()
		args := []string{"do"}
		for i := range lines {
			args = append(args, fmt.Sprintf("echo line %d", i))
		}
		names := []string{"a", "b", "c"}
		manifests := make([]string, 0, len(names))
		for _, name := range names {
			manifests = append(manifests, pod(name, "Never", args...))
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		run := b.command(t, "run", b.upArgs(t, directory(t, manifests...), "--until", "completed", "--follow-logs")...)
		run.Stdout, run.Stderr = w, w
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		var text slowly
		if _, err := io.CopyBuffer(&text, struct{ io.Reader }{r}, make([]byte, 4<<10)); err != nil {
			t.Fatal(err)
		}
		if err := run.Wait(); err != nil {
			t.Errorf("%v: %s", err, text.Bytes()[max(0, text.Len()-2000):])
		}
		next := map[string]int{}
		shown, _, _ := strings.Cut(text.String(), "\n{\n") // the report
		for line := range strings.Lines(shown + "\n") {
			name, _, isLog := strings.Cut(strings.TrimPrefix(line, "[pod/"), "/main] line ")
			if !isLog {
				continue // progress
			}
			if want := fmt.Sprintf("[pod/%s/main] line %d\n", name, next[name]); line != want {
				t.Fatalf("%q, want %q", line, want)
			}
			next[name]++
		}
		for _, name := range names {
			if next[name] != lines {
				t.Errorf("%s: %d lines", name, next[name])
			}
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}
