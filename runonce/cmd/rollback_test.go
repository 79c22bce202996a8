package cmd_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestRollback: the former definition of a pod runs again if a changed one misses its goal, for whatever reason, and
// what has not changed since is not tried again until SIGHUP comes.
func TestRollback(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, bad, why string
		starts         int // of the new definition, at least
	}{
		{"it fails", boxPod("a", "Never", "[exit, '3']"), "container \"main\" exited with code 3", 1},
		{"it takes too long", boxPod("a", "Always", "[exit, '3']"), "it has not reached its goal within 10m0s: container \"main\" ", 1},
		{"no image", strings.Replace(boxPod("a", "Always", "[sleep]"), "box:1\"", "none:1\", imagePullPolicy: Never", 1), "is not present", 0},
		{"no room", boxPod("a", "Always", "[sleep], resources: {requests: {cpu: 1k}}"), "enough resource: cpu", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t)
				began := m.noteStarts(nil)
				dir := t.TempDir()
				writePod(t, dir, "a", boxPod("a", "Always", "[sleep]"))
				w := watchInBubble(t, m, "--rollback", "--settle", "3s", dir)
				w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
				writePod(t, dir, "a", tc.bad)
				w.await(t, "the rollback", func() bool { return w.status() == "1 of 1 pod running; default/a: RolledBack" })
				w.awaitPods(t, "a 0")
				tried := func() int { return strings.Count(strings.Join(began.list(), "\n"), "a exit") }
				logged := func() int { return strings.Count(w.stderr.String(), "the pod is rolled back") }
				if text := w.stderr.String(); logged() != 1 || !strings.Contains(text, "default/a: Running: the new definition has failed: ") || !strings.Contains(text, tc.why) {
					t.Errorf("it says\n%s", text)
				}
				if got := invoke(t, m, "events", "a"); !strings.Contains(got.stdout, "RolledBack") {
					t.Errorf("events: %+v", got)
				}

				before := tried()
				writePod(t, dir, "b", boxPod("b", "Always", "[sleep]"))
				w.await(t, "the other pod", func() bool { return w.status() == "2 of 2 pods running; default/a: RolledBack" })
				time.Sleep(time.Hour)
				if tried() != before || logged() != 1 || before < tc.starts {
					t.Errorf("tried %d times, then %d\n%s", before, tried(), w.stderr.String())
				}

				w.signals <- syscall.SIGHUP
				w.await(t, "another rollback", func() bool { return logged() == 2 && w.status() == "2 of 2 pods running; default/a: RolledBack" })

				writePod(t, dir, "a", boxPod("a", "Always", "[sleep, 1h]"))
				w.await(t, "the repair", func() bool { return w.status() == "2 of 2 pods running" })
				w.end(t, syscall.SIGTERM, 0)
				if got := began.list(); !slices.Contains(got, "a sleep 1h") {
					t.Errorf("started: %v", got)
				}
			})
		})
	}
}

// TestRollbackWithoutLimit: a pod that only takes its time is not rolled back.
func TestRollbackWithoutLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		writePod(t, dir, "a", boxPod("a", "Always", "[sleep]"))
		w := watchInBubble(t, newMemory(t), "--rollback", "--timeout", "0", dir)
		w.keepsChange(t, dir, time.Hour)
	})
}

// TestRollbackAndTimeoutOfRun: the deadline that the configuration sets for runs is not about watch.
func TestRollbackAndTimeoutOfRun(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--rollback"}} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			writePod(t, dir, "a", boxPod("a", "Always", "[sleep]"))
			w := watchInBubbleWith(t, newMemory(t), []string{"RUNONCE_TIMEOUT=1m"}, append(flags, "--settle", "3s", dir)...)
			w.keepsChange(t, dir, 5*time.Minute)
		})
	}
}

// keepsChange changes the pod a, which runs, to one that fails again and again, and checks that it is not rolled back.
func (w *watched) keepsChange(t *testing.T, dir string, within time.Duration) {
	t.Helper()
	w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
	writePod(t, dir, "a", boxPod("a", "Always", "[exit, '3']"))
	w.await(t, "the change", func() bool { return strings.Contains(w.stderr.String(), "back-off") })
	time.Sleep(within)
	if text := w.stderr.String(); strings.Contains(text, "rolled back") {
		t.Errorf("it says\n%s", text)
	}
	w.signals <- syscall.SIGTERM
	<-w.code
}

// TestRollbackOfObjects: the former definition has the ConfigMap that it had, in variables and in volumes, also when its
// container is started again.
func TestRollbackOfObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		began := m.noteStarts(nil)
		dir := t.TempDir()
		settings := func(command string) string {
			return "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {COMMAND: " + command + "}}\n"
		}
		pod := boxPod("a", "OnFailure", "[do, $(COMMAND)], envFrom: [{configMapRef: {name: settings}}]")
		writePod(t, dir, "settings", settings("sleep 1h"))
		writePod(t, dir, "a", pod)
		w := watchInBubble(t, m, "--rollback", "--timeout", "1m", "--settle", "3s", dir)
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
		writePod(t, dir, "settings", settings("exit 3"))
		const rolledBack = "1 of 1 pod running; default/a: RolledBack"
		w.await(t, "the rollback", func() bool { return w.status() == rolledBack })
		if err := m.kill(t.Context(), "default/a", "main", 1); err != nil {
			t.Fatal(err)
		}
		w.awaitPods(t, "a 1")
		w.end(t, syscall.SIGTERM, 0)
		if w.status() != rolledBack {
			t.Errorf("status %q", w.status())
		}
		got := slices.DeleteFunc(began.list(), func(s string) bool { return s == "a do exit 3" })
		if !slices.Equal(got, []string{"a do sleep 1h", "a do sleep 1h", "a do sleep 1h"}) {
			t.Errorf("started: %v", began.list())
		}
	})
}

// TestRollbackAfterRestart: another process knows the former definition, of a pod that runs, of one that has succeeded and of one that
// was being replaced. Its table has what came of it, and it has one table.
func TestRollbackAfterRestart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, good, bad string
		during          bool
	}{
		{"it runs", boxPod("a", "Always", "[sleep]"), boxPod("a", "Always", "[exit, '3']"), false},
		{"it was being replaced", boxPod("a", "Always", "[sleep]"), boxPod("a", "Always", "[exit, '3']"), true},
		{"it has succeeded", boxPod("a", "Never", "[exit, '0']"), boxPod("a", "Never", "[exit, '3']"), false},
		{
			"it has a Secret", boxPod("a", "Always", "[sleep], envFrom: [{secretRef: {name: s, optional: true}}]"),
			boxPod("a", "Never", "[exit, '3'], envFrom: [{secretRef: {name: s, optional: true}}]"), false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t)
				began := m.noteStarts(nil)
				dir := t.TempDir()
				flags := []string{"--rollback", "--settle", "3s", "--until", "ready", dir}
				writePod(t, dir, "a", tc.good)
				w := watchInBubble(t, m, flags...)
				w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod ready" })
				code := 0
				if tc.during {
					code = 143
					writePod(t, dir, "a", tc.bad)
					w.await(t, "the change", func() bool { return slices.Contains(began.list(), "a exit 3") })
				}
				w.end(t, syscall.SIGTERM, code)
				writePod(t, dir, "a", tc.bad)
				w = watchInBubble(t, m, flags...)
				w.await(t, "the rollback", func() bool { return w.status() == "1 of 1 pod ready; default/a: RolledBack" })
				w.end(t, syscall.SIGTERM, 0)
				if text := w.stdout.String(); !strings.Contains(text, "RolledBack") || strings.Count(text, "OUTCOME") != 1 {
					t.Errorf("it prints\n%s", text)
				}
			})
		})
	}
}

// TestRollbackOfNewPods: there is nothing to roll back to.
func TestRollbackOfNewPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watchInBubble(t, newMemory(t), "--rollback", "--timeout", "10s", podDir(t, boxPod("a", "Never", "[exit, '1']")))
		w.await(t, "the failure", func() bool { return w.status() == "0 of 1 pod running; default/a: Failed (Error)" })
		time.Sleep(time.Minute)
		w.end(t, syscall.SIGTERM, 1)
		if got := w.stderr.String(); strings.Contains(got, "rolled back") {
			t.Errorf("it says\n%s", got)
		}
	})
}

// TestRollbackOfInvalid: a mistake between two changes does not make watch forget the former definition.
func TestRollbackOfInvalid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		writePod(t, dir, "a", boxPod("a", "Always", "[sleep]"))
		writePod(t, dir, "b", boxPod("b", "Always", "[sleep]"))
		w := watchInBubble(t, newMemory(t), "--rollback", "--skip-invalid", "--settle", "3s", dir)
		w.await(t, "the goal", func() bool { return w.status() == "2 of 2 pods running" })
		writePod(t, dir, "a", "kind: Pod\n")
		w.await(t, "the mistake", func() bool { return w.status() == "1 of 1 pod running" })
		writePod(t, dir, "a", boxPod("a", "Never", "[exit, '3']"))
		w.await(t, "the rollback", func() bool { return w.status() == "2 of 2 pods running; default/a: RolledBack" })
		w.end(t, syscall.SIGTERM, 0)
	})
}

// TestRollbackWithBadArchive: what is planned again can still be refused, with its place in the input.
func TestRollbackWithBadArchive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		dir := t.TempDir()
		writePod(t, dir, "a", boxPod("a", "Always", "[sleep]"))
		w := watchInBubble(t, m, "--rollback", "--offline", "--settle", "3s", dir)
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
		writePod(t, dir, "a", boxPod("a", "Always", "[exit, '3']"))
		w.await(t, "the change", func() bool { return strings.Contains(w.stderr.String(), "back-off") })
		m.engine.RemoveImage("localhost/box:1")
		w.await(t, "the refusal", func() bool {
			return strings.Contains(w.stderr.String(), `image "localhost/box:1" is not present`) && strings.Contains(w.stderr.String(), fmt.Sprint(dir, "/a.yaml:"))
		})
		w.signals <- syscall.SIGTERM
		<-w.code
	})
}

// TestRollbackKeepsImage: the image of the former definition is not removed to make room for the new one.
func TestRollbackKeepsImage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		m.available = func() int64 { return 5 } // percent
		for _, ref := range []string{"registry.example/good:1", "registry.example/bad:1"} {
			img := m.engine.Images()["localhost/box:1"]
			img.Digest = digestOf(ref)
			m.engine.Push(ref, img)
		}
		dir := t.TempDir()
		use := func(name, policy, args string) {
			writePod(t, dir, "a", strings.Replace(boxPod("a", policy, args), "localhost/box:1", "registry.example/"+name+":1", 1))
		}
		use("good", "Always", "[sleep]")
		w := watchInBubble(t, m, "--rollback", "--settle", "3s", "--image-gc-min-age", "0s", dir)
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
		m.engine.Withdraw("registry.example/good:1")
		use("bad", "Never", "[exit, '3']")
		w.await(t, "the rollback", func() bool { return w.status() == "1 of 1 pod running; default/a: RolledBack" })
		if !strings.Contains(w.stderr.String(), "removed unused images") {
			t.Errorf("no image was removed\n%s", w.stderr.String())
		}
		w.end(t, syscall.SIGTERM, 0)
	})
}
