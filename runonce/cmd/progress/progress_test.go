package progress

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/engine"
)

// events calls a display as a command does.
type events struct {
	*Display
	total, done int
}

func (*events) pod(name string) *v1.Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", name, types.UID(name)
	return pod
}

func (e *events) on(name, state, reason, message string) {
	p := runonce.Progress{Pod: e.pod(name), State: state, Reason: reason, Message: message}
	if state == "Retrying" {
		p.RetryAt = time.Now().Add(4 * time.Second)
	}
	if isOutcome(state) {
		e.done++
	}
	p.Done, p.Total = e.done, e.total
	e.Pod(p)
}

// pull takes nine seconds.
func (e *events) pull(name string, bytes int64) {
	for i := range int64(10) {
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: name, Done: bytes * i / 10, Total: bytes})
		time.Sleep(900 * time.Millisecond)
	}
	e.transfer(engine.Transfer{Step: engine.Pulling, Name: name, Done: bytes, Total: bytes, Ended: true})
}

// shown returns what is on standard error after the events.
func shown(t *testing.T, mode Mode, log func(*bytes.Buffer) *slog.Logger, script func(e *events)) string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(*testing.T) {
		d := New(&out, nil)
		d.mode = mode
		if log != nil {
			d.log = log(&out)
		}
		script(&events{Display: d})
		d.Close()
	})
	return out.String()
}

var progressCases = []struct {
	name   string
	script func(e *events)
	want   string
}{
	{"pods that wait for room are counted", func(e *events) {
		e.total = 7
		e.on("a", "Starting", "", "")
		for name, lacks := range map[string]string{"b": "cpu", "c": "memory", "d": "cpu"} {
			e.Pod(runonce.Progress{Pod: e.pod(name), State: "Waiting", Reason: "Queued", Message: "waits", Lacks: lacks, Total: e.total})
		}
		time.Sleep(11 * time.Second)
		e.on("a", "Succeeded", "", "")
		e.on("c", "Starting", "", "")
		time.Sleep(11 * time.Second)
	}, `default/a: Starting
waiting for 7 of 7 pods: default/a: starting; 3 not started yet; queued: 2 pods wait for cpu; 1 pod waits for memory
default/a: Succeeded
default/c: Starting
waiting for 6 of 7 pods: default/c: starting; 3 not started yet; queued: 2 pods wait for cpu
`},
	{"what failed in the plan before may fail again", func(e *events) {
		e.Plan([]*v1.Pod{e.pod("a"), e.pod("b")})
		for range 2 {
			e.on("a", "Running", "", "")
			e.on("b", "Failed", "Stopped", "it was stopped")
		}
		e.Plan([]*v1.Pod{e.pod("a"), e.pod("b")})
		e.on("a", "Running", "", "")
		e.on("b", "Failed", "Stopped", "it was stopped")
	}, `
default/a: Running
default/b: Failed: it was stopped
default/b: Failed: it was stopped
`},
	{"a short run has a line for each event", func(e *events) {
		e.total = 2
		e.on("a", "Starting", "", "")
		e.on("b", "Starting", "", "")
		e.on("a", "Waiting", "Settling", `container "main" has started`)
		time.Sleep(9 * time.Second)
		e.on("a", "Running", "", "")
		e.on("b", "Failed", "Error", "container \"main\" exited with code 1:\n\x1b[31mno database")
		time.Sleep(time.Hour)
	}, `
default/a: Starting
default/b: Starting
default/a: Running
default/b: Failed: container "main" exited with code 1: �[31mno database
`},
	{"ten seconds after the last line it says what is waited for", func(e *events) {
		e.total = 4
		e.on("a", "Starting", "", "")
		e.on("b", "Starting", "", "")
		e.on("a", "Waiting", "ContainersNotReady", `container "db" is running but not ready`)
		time.Sleep(4 * time.Second)
		e.on("c", "Starting", "", "")
		e.on("c", "Running", "", "")
		time.Sleep(5 * time.Second)
		e.on("a", "Waiting", "ContainersNotReady", `container "db" is running but not ready: probe failed`)
		time.Sleep(16 * time.Second)
		e.on("d", "Starting", "", "")
		e.on("a", "Ready", "", "")
		e.on("b", "Ready", "", "")
		e.on("d", "Ready", "", "")
		time.Sleep(time.Hour)
	}, `
default/a: Starting
default/b: Starting
default/c: Starting
default/c: Running
waiting for 3 of 4 pods: default/a: container "db" is running but not ready: probe failed; default/b: starting; 1 not started yet
waiting for 3 of 4 pods: default/a: container "db" is running but not ready: probe failed; default/b: starting; 1 not started yet
default/d: Starting
default/a: Ready
default/b: Ready
default/d: Ready
`},
	{"many pods are counted", func(e *events) {
		e.total = 9
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			e.on(name, "Starting", "", "")
		}
		time.Sleep(11 * time.Second)
		e.total = 5
		e.on("e", "Waiting", "PodNotCompleted", "still running")
		time.Sleep(11 * time.Second)
	}, `
default/a: Starting
default/b: Starting
default/c: Starting
default/d: Starting
default/e: Starting
waiting for 9 of 9 pods: default/a: starting; default/b: starting; 7 not started yet
waiting for 5 of 5 pods: default/a: starting; default/b: starting; default/c: starting and 2 more
`},
	{"a crash and a lost goal have lines, and retries", func(e *events) {
		e.total = 1
		e.on("a", "Starting", "", "")
		e.on("a", "Waiting", "ErrImagePull", "no route")
		e.on("a", "Retrying", "", "no route")
		time.Sleep(3 * time.Second)
		e.on("a", "Waiting", "Error", "exited with code 1")
		e.on("a", "Waiting", "Error", "exited with code 1 again")
		e.on("a", "Running", "", "")
		e.on("a", "Waiting", "ContainersNotReady", "is not ready")
		e.done = 0
		e.on("a", "Running", "", "")
	}, `
default/a: Starting
default/a: Retrying in 4s: no route
default/a: Waiting: exited with code 1
default/a: Running
default/a: Waiting: is not ready
default/a: Running
`},
	{"a pull has bytes, a rate and the time left", func(e *events) {
		e.total = 1
		e.on("a", "Pulling", "", "")
		time.Sleep(500 * time.Millisecond)
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: "registry.example/xx"})
		time.Sleep(300 * time.Millisecond)
		for i := range int64(20) {
			time.Sleep(time.Second)
			e.transfer(engine.Transfer{Step: engine.Pulling, Name: "registry.example/xx", Done: i * 4_200_000, Total: 120_000_000})
		}
		time.Sleep(12 * time.Second)
		e.transfer(engine.Transfer{Step: engine.Unpacking, Name: "registry.example/xx", Done: 1, Total: 3})
		time.Sleep(9 * time.Second)
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: "registry.example/xx", Done: 120_000_000, Total: 120_000_000, Ended: true})
		e.on("a", "Starting", "", "")
	}, `
pulling image registry.example/xx
waiting for 1 of 1 pod: default/a: waiting for its images; pulling registry.example/xx 34 of 120 MB, 3.4 MB/s, 26s left
waiting for 1 of 1 pod: default/a: waiting for its images; pulling registry.example/xx 76 of 120 MB, 3.9 MB/s, 12s left
waiting for 1 of 1 pod: default/a: waiting for its images; pulling registry.example/xx 80 of 120 MB, 2.1 MB/s, 19s left
waiting for 1 of 1 pod: default/a: waiting for its images; unpacking registry.example/xx 1 of 3 layers
pulled image registry.example/xx (120 MB in 41.3s)
default/a: Starting
`},
	{"the first bytes of a pull say nothing about the time left", func(e *events) {
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: "x", Total: 120_000_000})
		time.Sleep(2 * time.Second)
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: "x", Done: 300, Total: 120_000_000})
		time.Sleep(9 * time.Second)
	}, `
pulling image x
pulling x 0 of 120 MB, 0.0 MB/s
`},
	{"a failed pull is left to its pod", func(e *events) {
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: "x"})
		time.Sleep(11 * time.Second)
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: "x", Ended: true, Err: errors.New("no such host")})
		time.Sleep(time.Hour)
	}, `
pulling image x
pulling x (no data yet)
`},
	{"an archive that is imported, and one whose images are there", func(e *events) {
		e.transfer(engine.Transfer{Step: engine.Reading, Name: "a.tar"})
		time.Sleep(11 * time.Second)
		e.transfer(engine.Transfer{Step: engine.Reading, Name: "a.tar", Ended: true})
		e.transfer(engine.Transfer{Step: engine.Reading, Name: "b.tar"})
		e.transfer(engine.Transfer{Step: engine.Importing, Name: "b.tar"})
		time.Sleep(2 * time.Second)
		e.transfer(engine.Transfer{Step: engine.Importing, Name: "b.tar", Done: 4_350_000_000, Ended: true})
	}, `
reading a.tar
imported b.tar (4.3 GB in 2s)
`},
	{"a service says the same less and less often", func(e *events) {
		e.total = 1
		e.Service()
		e.on("a", "Waiting", "CrashLoopBackOff", "back-off 5m0s")
		time.Sleep(151 * time.Second) // after 10 s, 30 s, 70 s and 150 s
		e.on("a", "Waiting", "Error", "crashed")
		time.Sleep(11 * time.Second)
	}, `
default/a: Waiting: back-off 5m0s
waiting for 1 of 1 pod: default/a: back-off 5m0s
waiting for 1 of 1 pod: default/a: back-off 5m0s
waiting for 1 of 1 pod: default/a: back-off 5m0s
waiting for 1 of 1 pod: default/a: back-off 5m0s
default/a: Waiting: crashed
waiting for 1 of 1 pod: default/a: crashed
`},
	{"stopping says how much longer it may take", func(e *events) {
		e.on("a", "Stopping", "", "replaced")
		e.on("b", "Stopping", "", "")
		time.Sleep(11 * time.Second)
		e.on("b", "Stopped", "", "")
		time.Sleep(20 * time.Second)
		e.on("a", "Stopped", "", "")
		time.Sleep(time.Hour)
	}, `
default/a: Stopping (up to 30s): replaced
default/b: Stopping (up to 30s)
stopping default/a (up to 20s left), default/b (up to 20s left)
stopping default/a (up to 10s left)
stopping default/a (its grace period has passed)
`},
	{"the timeout of the run may shorten the time to stop", func(e *events) {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "default", "a", "a"
		e.Pod(runonce.Progress{Pod: pod, State: "Stopping", Within: 10*time.Second - time.Millisecond})
		time.Sleep(11 * time.Second)
	}, `
default/a: Stopping (up to 10s)
stopping default/a (its grace period has passed)
`},
	{"a pod on a cluster may wait for somebody to remove its finalizers", func(e *events) {
		e.Holders(func(pod *v1.Pod) []string {
			return map[string][]string{"a": {"example.com/backup", "example.com/billing"}}[pod.Name]
		})
		e.on("a", "Stopping", "", "")
		e.on("b", "Stopping", "", "")
		time.Sleep(31 * time.Second)
	}, `
default/a: Stopping (up to 30s)
default/b: Stopping (up to 30s)
stopping default/a (up to 20s left), default/b (up to 20s left)
stopping default/a (up to 10s left), default/b (up to 10s left)
stopping default/a (its grace period has passed; it stays until its finalizers are removed: example.com/backup, example.com/billing), default/b (its grace period has passed)
`},
	{"a run that has ended waits only for its pods to stop", func(e *events) {
		e.total = 2
		e.on("a", "Starting", "", "")
		e.on("b", "Starting", "", "")
		e.on("a", "Stopping", "", "the run removes its pods")
		e.on("b", "Stopping", "", "the run removes its pods")
		e.on("a", "Stopped", "", "")
		time.Sleep(11 * time.Second)
	}, `
default/a: Starting
default/b: Starting
default/a: Stopping (up to 30s): the run removes its pods
default/b: Stopping (up to 30s): the run removes its pods
stopping default/b (up to 20s left)
`},
	{"other waits", func(e *events) {
		end := e.Wait("waiting for another run")
		time.Sleep(11 * time.Second)
		end()
		time.Sleep(time.Hour)
	}, `
waiting for another run
`},
}

// TestProgressLines: every line is exact, and nothing is said before its time.
func TestProgressLines(t *testing.T) {
	t.Parallel()
	for _, tc := range progressCases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), shown(t, Lines, nil, tc.script)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := shown(t, Off, nil, tc.script); got != "" {
				t.Errorf("with --quiet: %s", got)
			}
		})
	}
}

// TestProgressLog: a log of level info has the events, and no line is printed.
func TestProgressLog(t *testing.T) {
	t.Parallel()
	log := func(out *bytes.Buffer) *slog.Logger {
		return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	}
	got := shown(t, Lines, log, func(e *events) {
		e.total = 1
		e.on("a", "Starting", "", "")
		e.on("a", "Waiting", "ContainersNotReady", "not ready")
		time.Sleep(time.Second)
		e.pull("x", 2e6)
		time.Sleep(11 * time.Second)
		e.on("a", "Running", "", "")
	})
	want := `{"level":"INFO","msg":"Starting","pod":"default/a","message":"","done":0,"total":1}
{"level":"INFO","msg":"Waiting","pod":"default/a","message":"not ready","done":0,"total":1}
{"level":"INFO","msg":"pulling image","image":"x"}
{"level":"INFO","msg":"pulled image","image":"x","bytes":2000000,"elapsed":9000000000}
{"level":"INFO","msg":"waiting","for":"waiting for 1 of 1 pod: default/a: not ready"}
{"level":"INFO","msg":"Running","pod":"default/a","message":"","done":1,"total":1}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
