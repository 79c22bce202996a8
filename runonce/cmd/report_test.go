package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runonce/lastrun"
)

func want(t *testing.T, got invocation, code int, stdout, stderr string) {
	t.Helper()
	if got.code != code || !strings.Contains(got.stdout, stdout) || !strings.Contains(got.stderr, stderr) {
		t.Errorf("exit code %d, want %d, %q and %q\n%s%s", got.code, code, stdout, stderr, got.stdout, got.stderr)
	}
}

// TestReportWait: --wait waits for the end of a run, also if it has not begun yet, and says so.
func TestReportWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		job := manifest(t, "job", "Never", "[do, sleep 30s, exit 3]")
		want(t, invoke(t, m, "report", job, "--wait", "--timeout", "5s"), 1, "", "runonce: --timeout 5s has passed: waiting for a run of "+job+": none has begun yet\n")
		ran := make(chan invocation, 1)
		time.AfterFunc(20*time.Second, func() { ran <- invoke(t, m, "run", job, "--node", nodeFile(), "--until", "completed") })
		begun := time.Now()
		waited := invoke(t, m, "report", job, "--wait", "--exit-code")
		want(t, waited, 1, "job  Failed", "waiting for a run of "+job+": none has begun yet")
		want(t, waited, 1, "", "waiting for the run of "+job+" by process ")
		if took := time.Since(begun); took < 50*time.Second || took > 51*time.Second {
			t.Errorf("waited for %s", took)
		}
		if got := <-ran; got.stdout != waited.stdout {
			t.Errorf("%s, not\n%s", waited.stdout, got.stdout)
		}
		want(t, invoke(t, m, "report", job, "--wait"), 0, "job  Failed", "ended ")

		// What goes on has no report yet, and an older one does not count.
		go func() { ran <- invoke(t, m, "run", job, "--node", nodeFile(), "--until", "completed") }()
		time.Sleep(10 * time.Second)
		got := invoke(t, m, "report", job)
		want(t, got, 1, "job  Running", ", has not ended: --wait waits for it")
		want(t, invoke(t, m, "report", "-o", "json"), 1, `"results": []`, "has not ended")
		<-ran
	})
}

// TestReportOfKilled: a run that was killed has no result, and that of the run before is not taken for it.
func TestReportOfKilled(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	web := manifest(t, "web", "Always", "[sleep]")
	want(t, invoke(t, m, "run", web, "--node", nodeFile(), "--settle", "0"), 0, "", "")
	r, err := lastrun.Begin(m.root, "run", []string{web})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.End(0); err != nil { // without a report
		t.Fatal(err)
	}
	for _, flag := range []string{"--exit-code", "--wait"} {
		want(t, invoke(t, m, "report", web, flag), 1, "web  Running", ", has ended without a result: it was killed, or the machine stopped\n")
	}
	want(t, invoke(t, m, "report", "-o", "json", "--exit-code"), 1, `"exitCode": 1`, "")
	want(t, invoke(t, m, "report", "-o", "github"), 1, "::error title=runonce::the run of ", "")
}

// TestReportOfWatch: a watch that goes on has its last table as its report.
func TestReportOfWatch(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	dir := podDir(t, boxPod("web", "Always", "[sleep]"))
	w := watchPaths(t, m, dir)
	want(t, invoke(t, m, "report", dir, "--wait", "--exit-code"), 0, "web  Running", "goes on, this is its table of ")
	if err := os.WriteFile(filepath.Join(dir, "second.yaml"), []byte(boxPod("second", "Always", "[sleep]")), 0o600); err != nil {
		t.Fatal(err)
	}
	w.await(t, "the second table", func() bool {
		got := invoke(t, m, "report", dir)
		return got.code == 0 && strings.Contains(got.stdout, "second  Running") && strings.Contains(got.stderr, "watch of "+dir)
	})
	w.end(t, syscall.SIGTERM, 0)
	want(t, invoke(t, m, "report", dir, "--exit-code"), 0, "second  Running", "ended ")
}

// TestReportUnwritable: a report that cannot be kept is no obstacle to a run.
func TestReportUnwritable(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	if err := os.WriteFile(filepath.Join(m.root, "reports"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	web := manifest(t, "web", "Always", "[sleep]")
	want(t, invoke(t, m, "run", web, "--node", nodeFile(), "--settle", "0"), 0, "web  Running", `warning: "runonce report" will not show this run: noting that the run begins: `)
}
