package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// everywhere runs the test with the embedded containerd and with both daemons.
func everywhere(t *testing.T, test func(t *testing.T, b *box)) {
	t.Helper()
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}

func embedded(t *testing.T, test func(t *testing.T, b *box)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) { test(t, newBox(t, "")) })
}

func daemons(t *testing.T, test func(t *testing.T, b *box), versions ...daemon.Version) {
	t.Helper()
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) {
			roottest.Require(t)
			test(t, newBox(t, daemon.Serve(t, v).Socket))
		})
	}
}

// eventually waits until the condition is true, and returns false if that takes too long.
func eventually(condition func() bool) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// logOf returns the log of the first instance of the pod's container, in the CRI format.
func (b *box) logOf(t *testing.T, pod, container string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "logs", "*_"+pod+"_*", container, "0.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("logs of %s/%s: %v, %v", pod, container, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// awaitLog waits until the container has written the text.
func (b *box) awaitLog(t *testing.T, pod, container, text string) {
	t.Helper()
	if !eventually(func() bool { return strings.Contains(b.logOf(t, pod, container), text) }) {
		t.Fatalf("%s/%s wrote %q, which does not contain %q", pod, container, b.logOf(t, pod, container), text)
	}
}

const signaled = `apiVersion: v1
kind: Pod
metadata: {name: signaled}
spec:
  os: {name: linux}
  hostNetwork: true
  containers:
  - {name: own, image: localhost/box:1, args: [trap], lifecycle: {stopSignal: SIGUSR2}}
  - {name: realtime, image: localhost/box:1, args: [trap], lifecycle: {stopSignal: SIGRTMIN+3}}
  - {name: image, image: localhost/quits:1, args: [trap]}
  - {name: none, image: localhost/box:1, args: [trap]}
`

func TestStopSignal(t *testing.T) {
	want := []struct{ container, status, log string }{
		{"own", "SIGUSR2", "got signal 12"},
		{"realtime", "SIGRTMIN+3", "got signal 37"},
		{"image", "SIGQUIT", "got signal 3"},
		{"none", "SIGTERM", "got signal 15"},
	}
	everywhere(t, func(t *testing.T, b *box) {
		dir := directory(t, signaled)
		got := b.up(t, dir, 0)
		for i, w := range want {
			if s := got.report.Results[0].Status.ContainerStatuses[i].StopSignal; s != w.status {
				t.Errorf("status of %s: stop signal %q, want %q", w.container, s, w.status)
			}
			// Until its handler is installed, the first process of a PID namespace ignores a signal.
			b.awaitLog(t, "signaled", w.container, "ready")
		}
		if r := b.run(t, "down", dir); r.code != 0 {
			t.Fatalf("down: exit code %d\n%s", r.code, r.stderr)
		}
		for _, w := range want {
			if text := b.logOf(t, "signaled", w.container); !strings.Contains(text, w.log) {
				t.Errorf("the log of %s does not contain %q:\n%s", w.container, w.log, text)
			}
		}
	})
}
