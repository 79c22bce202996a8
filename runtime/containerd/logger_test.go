package containerd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/internal/testing/exectest"
)

// TestLoggerStarts: a logger is awaited until it is ready, has ended, or nobody waits any more, and
// then does not run on.
func TestLoggerStarts(t *testing.T) {
	t.Parallel()
	late := errors.New("not within a moment")
	// Descriptor 5 is where a logger says that it is ready.
	for name, tt := range map[string]struct {
		script string
		limit  time.Duration
		want   string
	}{
		"ready": {script: "printf x >&5", limit: time.Hour},
		"ended": {script: "exit 1", limit: time.Hour, want: "starting the logger: it has exited: EOF"},
		"hangs": {script: "exec sleep 1000", want: "starting the logger: waiting until it is ready: " + late.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program := filepath.Join(dir, "logger")
			exectest.Write(t, program, "#!/bin/sh\necho $$ >"+dir+"/pid\n"+tt.script)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.limit == 0 {
				go func() {
					awaitPID(t, dir)
					cancel(late)
				}()
			}
			release, err := logger{program: program, dir: filepath.Join(dir, "pipes")}.start(ctx)
			if err == nil {
				release()
			}
			if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
				t.Errorf("%v, want %q", err, tt.want)
			}
			pid := awaitPID(t, dir)
			for process.Alive(pid) {
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// awaitPID returns the number of the logger's process.
func awaitPID(t *testing.T, dir string) int {
	t.Helper()
	for {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if n, aerr := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && aerr == nil {
			return n
		}
		time.Sleep(time.Millisecond)
	}
}
