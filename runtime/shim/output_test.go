package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOutputIsCompleteOnceDrained(t *testing.T) {
	t.Parallel()
	bundle := t.TempDir()
	log := filepath.Join(t.TempDir(), "0.log")
	o, err := newOutput(bundle, log, false)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(o.stdout, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.release()
	const n = 5000
	for range n {
		if _, err := out.WriteString("a line\n"); err != nil {
			t.Fatal(err)
		}
	}
	o.drain(time.Millisecond)
	select {
	case <-o.done:
		t.Error("it ended while the pipe was open")
	default:
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	o.drain(time.Minute)
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(data), " stdout F a line\n"); got != n {
		t.Errorf("%d lines", got)
	}
}

func TestOutputWithATerminalHasOneStream(t *testing.T) {
	t.Parallel()
	o, err := newOutput(t.TempDir(), filepath.Join(t.TempDir(), "0.log"), true)
	if err != nil {
		t.Fatal(err)
	}
	if o.stderr != "" {
		t.Errorf("stderr %q", o.stderr)
	}
	o.release()
	o.drain(time.Minute)
}

func TestOutputNeedsItsDirectory(t *testing.T) {
	t.Parallel()
	if _, err := newOutput(t.TempDir(), filepath.Join(t.TempDir(), "none", "0.log"), false); err == nil {
		t.Error("it opened a log in no directory")
	}
}

func TestInvoked(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		"runonce":                              false,
		"runonce run dir":                      false,
		"runonce -v":                           false,
		"runonce -namespace runonce -id a":     true,
		"runonce -info":                        true,
		"runonce runonce-logger runonce:///x":  true,
		"runonce pause":                        true,
		"runonce --namespace=runonce ps pause": false,
	} {
		if got := Invoked(strings.Fields(args)); got != want {
			t.Errorf("%q: %v", args, got)
		}
	}
}
