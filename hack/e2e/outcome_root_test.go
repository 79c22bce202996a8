package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestOutcomeOfKilledRun: what a run has decided about a pod is known afterwards. While the next one
// starts the pod again, and after it was killed, nothing is known, and ps says nothing false.
func TestOutcomeOfKilledRun(t *testing.T) {
	b := newBox(t, "")
	dir := directory(t, pod("crash", "OnFailure", "exit", "9"))
	b.up(t, dir, 1, "--until", "completed", "--max-restarts", "1")
	// With names, the details are those of the pod.
	for _, args := range [][]string{nil, {"crash"}} {
		if out := b.run(t, "ps", args...).stdout; !strings.Contains(out, "Exited  Failed") || !strings.Contains(out, "gave up after 1 restart") {
			t.Errorf("after a run that gave it up, ps says\n%s", out)
		}
	}

	cmd := b.command(t, "run", b.upArgs(t, dir, "--until", "completed", "--max-restarts", "9")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	json := ""
	for deadline := time.Now().Add(limit); !strings.Contains(json, `"watched": true`); json = b.run(t, "ps", "-o", "json").stdout {
		if time.Now().After(deadline) {
			t.Fatalf("the next run does not watch the pod:\n%s", json)
		}
	}
	if strings.Contains(json, `"outcome"`) {
		t.Errorf("while the next run starts it, ps says\n%s", json)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if out := b.run(t, "ps").stdout; strings.Contains(out, "Failed") || strings.Contains(out, "CrashLoopBackOff") {
		t.Errorf("after that was killed, ps says\n%s", out)
	}
	if json := b.run(t, "ps", "-o", "json").stdout; strings.Contains(json, `"outcome"`) || !strings.Contains(json, `"watched": false`) {
		t.Errorf("after that was killed, ps says\n%s", json)
	}
}
