package cmd_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// appRef is an image of a registry.
const appRef = "registry.example/app:1"

// appPod is a pod with that image.
func appPod(policy string) string {
	return strings.Replace(boxPod("a", policy, "[sleep]"), "localhost/box:1", appRef, 1)
}

// pushApp puts an image with a digest of its own into the registry.
func (m *memory) pushApp(name string) {
	img := m.engine.Images()["localhost/box:1"]
	img.Digest = digestOf(name)
	m.engine.Push(appRef, img)
}

// uses says whether the pod has an image by its digest.
func (w *watched) uses(t *testing.T, name string) func() bool {
	t.Helper()
	return func() bool {
		return strings.Contains(invoke(t, w.m, "ps", "-o", "json").stdout, appRef+"@"+digestOf(name))
	}
}

// tells says whether watch has told that the image has changed.
func (w *watched) tells(from, to string) func() bool {
	return func() bool {
		return strings.Contains(w.stderr.String(), fmt.Sprintf("image %q has changed from %s to %s", appRef, digestOf(from), digestOf(to)))
	}
}

// noAnswer is what watch says when a registry does not answer.
const noAnswer = "could not ask the registry for a newer image; nothing changes"

// TestPullInterval: a pod is replaced when the registry has another image of its tag, and gets the former image again
// if the new one does not reach the goal. A registry that does not answer changes nothing.
func TestPullInterval(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"newer", "always"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(t)
				program := m.engine.Program
				m.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
					if strings.HasSuffix(c.Image, digestOf("broken")) {
						c.Spec.Process.Args = []string{"/bin/box", "exit", "3"}
					}
					return program(c)
				}
				m.pushApp("first")
				m.engine.Push("localhost/box:1", m.engine.Images()["localhost/box:1"]) // --pull always overrides policies
				dir := podDir(t, appPod("Never")+"---\n"+strings.Replace(boxPod("never", "Never", "[sleep]"), `box:1"`, `box:1", imagePullPolicy: Never`, 1))
				w := watchInBubble(t, m, "--pull", mode, "--pull-interval", "1h", "--rollback", "--settle", "3s", dir)
				w.await(t, "the goal", func() bool { return strings.HasSuffix(w.status(), "2 of 2 pods running") })
				w.await(t, "the first image", w.uses(t, "first"))

				m.pushApp("second")
				begin := time.Now()
				w.await(t, "the change", w.tells("first", "second"))
				if took := time.Since(begin); took < 59*time.Minute || took > 70*time.Minute {
					t.Errorf("the registry was asked after %s", took)
				}
				w.await(t, "the second image", w.uses(t, "second"))
				w.await(t, "the goal", func() bool { return w.status() == "2 of 2 pods running" })
				if got := invoke(t, m, "events", "a"); !strings.Contains(got.stdout, "ImageChanged") {
					t.Errorf("events: %+v", got)
				}

				m.engine.Withdraw(appRef)
				w.await(t, "the warning", func() bool { return strings.Contains(w.stderr.String(), noAnswer) })
				m.pushApp("broken")
				w.signals <- syscall.SIGHUP
				w.await(t, "the change", w.tells("second", "broken"))
				w.await(t, "the rollback", func() bool { return w.status() == "2 of 2 pods running; default/a: RolledBack" })
				w.await(t, "the former image", w.uses(t, "second"))

				m.pushApp("third")
				w.await(t, "the repair", w.uses(t, "third"))
				w.await(t, "the goal", func() bool { return w.status() == "2 of 2 pods running" })
				w.end(t, syscall.SIGTERM, 0)
				if text := w.stdout.String(); strings.Contains(text, "never@") || strings.Count(w.stderr.String(), "default/never: Starting") != 1 {
					t.Errorf("the pod that is never pulled was replaced:\n%s", w.stderr.String())
				}
			})
		})
	}
}

// TestPullIntervalAfterRestart: a pod stays as it is when watch begins again and the registry does not answer, and is
// replaced by the image that the registry has then.
func TestPullIntervalAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		began := m.noteStarts(nil)
		m.pushApp("first")
		flags := []string{"--pull", "newer", "--pull-interval", "1h", podDir(t, appPod("Always"))}
		w := watchInBubble(t, m, flags...)
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
		w.end(t, syscall.SIGTERM, 0)

		m.engine.Withdraw(appRef)
		w = watchInBubble(t, m, flags...)
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
		w.end(t, syscall.SIGTERM, 0)
		if got := began.list(); len(got) != 1 || !strings.Contains(w.stderr.String(), noAnswer) {
			t.Errorf("started: %v\n%s", got, w.stderr.String())
		}

		m.pushApp("second")
		w = watchInBubble(t, m, append(flags, "-o", "json")...)
		w.await(t, "the second image", w.uses(t, "second"))
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
		w.end(t, syscall.SIGTERM, 0)
		if text := w.stdout.String(); !w.tells("first", "second")() || !strings.Contains(text, `"reason": "ImageChanged"`) {
			t.Errorf("it says\n%s\n%s", w.stderr.String(), text)
		}
		checkDocument(t, []string{"watch"}, w.stdout.String())
	})
}

// TestPullIntervalByTag: a pod that was started while its registry did not answer has its image by the tag, and is replaced only
// when there is another one, not when some other pod changes.
func TestPullIntervalByTag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t)
		began := m.noteStarts(nil)
		dir := t.TempDir()
		writePod(t, dir, "a", appPod("Always"))
		w := watchInBubble(t, m, "--pull", "newer", "--pull-interval", "1h", dir)
		w.await(t, "the failure", func() bool { return strings.Contains(w.stderr.String(), "default/a: ") })
		m.pushApp("first")
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
		time.Sleep(3 * time.Hour)
		writePod(t, dir, "b", boxPod("b", "Always", "[sleep], imagePullPolicy: Never"))
		w.await(t, "the goal", func() bool { return w.status() == "2 of 2 pods running" })
		if got := began.list(); len(got) != 2 {
			t.Errorf("started: %v", got)
		}
		m.pushApp("second")
		w.await(t, "the change", w.tells("first", "second"))
		w.await(t, "the second image", w.uses(t, "second"))
		w.end(t, syscall.SIGTERM, 0)
	})
}
