package progress

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/engine"
)

// told returns what the service manager is told, with the seconds since the begin.
func told(t *testing.T, script func(e *events)) string {
	t.Helper()
	var out strings.Builder
	synctest.Test(t, func(*testing.T) {
		begin := time.Now()
		d := New(io.Discard, func(message string) {
			_, _ = fmt.Fprintf(&out, "%d %s\n", int(time.Since(begin).Seconds()), message)
		})
		script(&events{Display: d})
		d.Close()
		time.Sleep(time.Hour)
	})
	return out.String()
}

var managerCases = []struct {
	name   string
	script func(e *events)
	want   string
}{
	{"what a run does, and more time while something comes", func(e *events) {
		e.total = 3
		for i := range int64(4) {
			e.transfer(engine.Transfer{Step: engine.Pulling, Name: "registry.example/web", Done: 10 * i, Total: 100})
			time.Sleep(300 * time.Millisecond)
		}
		e.on("a", "Starting", "", "")
		e.on("b", "Pulling", "", "")
		e.on("a", "Running", "", "")
		time.Sleep(10 * time.Second) // nothing moves any more
		e.transfer(engine.Transfer{Step: engine.Pulling, Name: "registry.example/web", Done: 100, Total: 100, Ended: true})
		e.on("b", "Waiting", "CrashLoopBackOff", "it crashes")
		time.Sleep(2 * time.Second)
		e.on("b", "Failed", "CrashLoopBackOff", "it crashes")
		time.Sleep(2 * time.Second)
		e.on("c", "Rejected", "OutOfcpu", "")
		e.EndRun()
		time.Sleep(2 * time.Second)
	}, `
0 STATUS=pulling registry.example/web 0%
0 EXTEND_TIMEOUT_USEC=60000000
1 STATUS=pulling registry.example/web 30%
1 EXTEND_TIMEOUT_USEC=60000000
2 STATUS=1 of 3 pods running; pulling registry.example/web 30%
2 EXTEND_TIMEOUT_USEC=60000000
12 STATUS=1 of 3 pods running; default/b: it crashes
12 EXTEND_TIMEOUT_USEC=60000000
14 STATUS=1 of 3 pods running; default/b: Failed (CrashLoopBackOff)
16 STATUS=1 of 3 pods running; default/b: Failed (CrashLoopBackOff); default/c: Rejected (OutOfcpu)
`},
	{"more time to stop, as long as pods may take", func(e *events) {
		pod := e.pod("a")
		e.Display.Stopping()
		e.Pod(runonce.Progress{Pod: pod, State: "Stopping", Within: 2500 * time.Millisecond})
		time.Sleep(5 * time.Second)
		e.Pod(runonce.Progress{Pod: pod, State: "Stopped"})
		time.Sleep(5 * time.Second)
	}, `
0 STOPPING=1
0 STATUS=stopping default/a (up to 3s left)
0 EXTEND_TIMEOUT_USEC=12500000
1 STATUS=stopping default/a (up to 2s left)
1 EXTEND_TIMEOUT_USEC=11500000
2 STATUS=stopping default/a (up to 1s left)
2 EXTEND_TIMEOUT_USEC=10500000
3 STATUS=stopping default/a (its grace period has passed)
`},
	{"the results stay", func(e *events) {
		e.Goal(runonce.UntilReady)
		e.Display.Ready()
		e.Display.Ready() // of a further plan
		e.Results([]runonce.Result{
			{Pod: e.pod("a"), Outcome: runonce.Ready},
			{Pod: e.pod("old"), Outcome: runonce.Succeeded, Reason: runonce.ReasonPruned},
			{Pod: e.pod("b"), Outcome: runonce.Failed, Reason: "ErrImagePull", Message: "no such image"},
		})
		e.Wait("closing the container engine")
		time.Sleep(5 * time.Second)
	}, `
0 READY=1
0 STATUS=1 of 2 pods ready; default/b: Failed (ErrImagePull)
`},
	{"another plan", func(e *events) {
		e.Plan([]*v1.Pod{e.pod("a"), e.pod("b")})
		e.total = 2
		e.on("a", "Running", "", "")
		e.on("b", "Failed", "ErrImagePull", "")
		time.Sleep(2 * time.Second)
		e.Plan([]*v1.Pod{e.pod("a")})
		time.Sleep(2 * time.Second)
		e.Plan(nil)
		e.Pod(runonce.Progress{Pod: e.pod("a"), State: "Stopping", Within: time.Second})
		e.Pod(runonce.Progress{Pod: e.pod("a"), State: "Stopped"})
		time.Sleep(2 * time.Second)
	}, `
0 STATUS=1 of 2 pods running; default/b: Failed (ErrImagePull)
0 EXTEND_TIMEOUT_USEC=60000000
2 STATUS=1 of 1 pod running
4 STATUS=0 of 0 pods running
`},
	{"a signal", func(e *events) { e.Interrupted() }, "\n0 STOPPING=1\n"},
}

// TestManager: the service manager is told what changes, at most once a second, and gets no more
// time than is needed.
func TestManager(t *testing.T) {
	t.Parallel()
	for _, tc := range managerCases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), told(t, tc.script)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
