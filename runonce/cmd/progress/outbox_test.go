package progress

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runonce"
)

// slowReader takes a second for each write.
type slowReader struct {
	mu   sync.Mutex
	text strings.Builder
	err  error
}

func (r *slowReader) Write(p []byte) (int, error) {
	time.Sleep(time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	return r.text.Write(p)
}

func (r *slowReader) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// TestLogsAndSlowReader: a log waits for a reader that is slow, an event does not; every line is written, whole, before
// Flush returns and before anything that comes after Close.
func TestLogsAndSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &slowReader{}
		d := New(out, nil)
		d.Configure(Lines, nil, false)
		logs := d.Logs()
		begin := time.Now()
		var writing sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			writing.Go(func() {
				for range 500 {
					if _, err := fmt.Fprintln(logs, name+strings.Repeat("x", 1000)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		before := time.Now()
		d.Pod(runonce.Progress{Pod: (*events)(nil).pod("web"), State: "Starting", Total: 1})
		if took := time.Since(before); took != 0 {
			t.Errorf("an event took %s", took)
		}
		writing.Wait()
		if took := time.Since(begin); took < 5*time.Second {
			t.Errorf("the logs took %s", took)
		}
		d.Flush()
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		whole := 0
		for _, line := range lines {
			if len(line) == 1001 && strings.Trim(line[1:], "x") == "" {
				whole++
			}
		}
		if whole != 1000 || len(lines) < 1001 {
			t.Errorf("%d lines, of which %d of logs are whole", len(lines), whole)
		}
		d.Close()
		before = time.Now()
		if _, err := fmt.Fprintln(d.Stderr(), "last"); err != nil || time.Since(before) != time.Second || !strings.HasSuffix(out.String(), "\nlast\n") {
			t.Errorf("after the end: %s, %v", time.Since(before), err)
		}
	})
}

// TestLogsWithoutReader: what nobody reads is dropped.
func TestLogsWithoutReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(&slowReader{err: errors.New("broken pipe")}, nil)
		logs := d.Logs()
		for range 1000 {
			if _, err := fmt.Fprintln(logs, strings.Repeat("x", 1000)); err != nil {
				t.Fatal(err)
			}
		}
		d.Close()
	})
}
