package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// jobsOfOneCPU writes so many pods that sleep for a while, and returns the file.
func jobsOfOneCPU(t *testing.T, prefix string, n int, seconds int) string {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s-%03d}\nspec:\n  restartPolicy: Never\n  containers:\n"+
			"  - {name: main, image: \"localhost/box:1\", args: [do, sleep %ds], resources: {requests: {cpu: 1}}}\n", prefix, i, seconds)
	}
	path := filepath.Join(t.TempDir(), prefix+".yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mostAtOnce returns how many pods run at once by the lines of progress.
func mostAtOnce(stderr string) int {
	running, most := 0, 0
	for line := range strings.Lines(stderr) {
		switch {
		case strings.HasSuffix(line, ": Starting\n"):
			running++
		case strings.HasSuffix(line, ": Succeeded\n"):
			running--
		}
		most = max(most, running)
	}
	return most
}

// TestManyJobs: 500 jobs of one CPU on two run to their end, two at a time, without a pause; lines of progress say
// for what the others wait, and how many these are.
func TestManyJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		n := 500
		if testing.Short() {
			n = 50
		}
		begin := time.Now()
		run := invoke(t, m, "run", "--queue", "--until", "completed", "--node", nodeFile(), "-o", "json", jobsOfOneCPU(t, "job", n, 30))
		if run.code != 0 {
			t.Fatalf("exit code %d: %s", run.code, run.stderr)
		}
		if got := strings.Count(run.stdout, `"outcome": "Succeeded"`); got != n {
			t.Errorf("%d pods have succeeded", got)
		}
		if most := mostAtOnce(run.stderr); most != 2 {
			t.Errorf("%d pods at once", most)
		}
		if took := time.Since(begin); took != time.Duration(n/2)*30*time.Second {
			t.Errorf("it has taken %s", took)
		}
		for _, want := range []string{
			fmt.Sprintf(`waiting for %d of %[1]d pods: .*; queued: %d pods wait for cpu\n`, n, n-2),
			fmt.Sprintf(`waiting for 2 of %d pods: `, n),
		} {
			if !regexp.MustCompile(want).MatchString(run.stderr) {
				t.Errorf("no line %q", want)
			}
		}
		if strings.Contains(run.stderr, "Waiting") {
			t.Error("there is a line for each pod that waits")
		}
	})
}

// TestTwoQueues: two runs at once share the machine, and never use more than it has.
func TestTwoQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		long := jobsOfOneCPU(t, "long", 12, 10)
		done := make(chan invocation, 1)
		go func() {
			done <- invoke(t, m, "run", "--queue", "--until", "completed", "--node", nodeFile(), long)
		}()
		time.Sleep(time.Second)
		short := jobsOfOneCPU(t, "short", 1, 1)
		late := invoke(t, m, "run", "--queue", "--until", "completed", "--node", nodeFile(), short)
		if late.code != 3 || !strings.Contains(late.stdout, "pods of other runs have it: default/long-000, default/long-001") {
			t.Errorf("exit code %d: %s%s", late.code, late.stdout, late.stderr)
		}
		// A run that sees a larger machine takes what is free there, and later also what the first one gives back.
		wide := invoke(t, m, "run", "--queue", "--until", "completed", "--node", nodeFile(), "--capacity", "cpu=3", jobsOfOneCPU(t, "wide", 9, 7))
		if wide.code != 0 {
			t.Errorf("exit code %d: %s%s", wide.code, wide.stdout, wide.stderr)
		}
		if first := <-done; first.code != 0 || mostAtOnce(first.stderr) != 2 {
			t.Errorf("exit code %d: %s%s", first.code, first.stdout, first.stderr)
		}
	})
}
