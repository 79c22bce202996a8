package logs

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestLostOutput: output that does not fit on the disk is lost, but the log says so as soon as it
// can be written.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 0, 0)
	good := w.file
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		roottest.Lacks(t, "a device that is always full: %v", err)
	}
	defer func() { _ = full.Close() }()
	copyOf := func(in string, fails bool) {
		t.Helper()
		if err := w.Copy(Stderr, strings.NewReader(in)); (err != nil) != fails {
			t.Errorf("writing %q: %v", in, err)
		}
	}
	copyOf("before\n", false)
	w.file = full
	copyOf("12\n456\n", true)
	copyOf("8\nincomplete", true)
	w.file = good
	copyOf("after\n", false)
	w.file = full
	copyOf("x\n", true)
	w.file = good
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	want := []string{
		"F before", "F runonce: 19 bytes of output were lost: no space left on device", "F after",
		"F runonce: 2 bytes of output were lost: no space left on device",
	}
	if diff := cmp.Diff(want, entries(t, w.path)); diff != "" {
		t.Error(diff)
	}
}

// TestTornEntry: an entry that was written in part is completed.
func TestTornEntry(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 1<<30, 2)
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	w.file = pipe
	// A pipe holds 64 KiB, which a slow machine takes its time to fill.
	if err := pipe.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", MaxLine-1) + "\n"
	if err := w.Copy(Stdout, strings.NewReader(strings.Repeat(line, 6))); err == nil {
		t.Fatal("no error")
	}
	if err := pipe.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	entry := at + " stdout F " + line
	want := strings.Repeat(entry, 4) + at + " stderr F runonce: 32768 bytes of output were lost: write |1: i/o timeout\n"
	if diff := cmp.Diff(want, strings.Replace(string(text), "writing log: ", "", 1)); diff != "" {
		t.Error(diff)
	}
}
