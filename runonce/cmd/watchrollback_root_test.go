package cmd_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/report"
)

// watch starts a watch command beside the test, which ends it.
func (m machine) watch(t *testing.T, args ...string) *watched {
	t.Helper()
	w := &watched{pause: 100 * time.Millisecond, patience: patience}
	w.start(t, m.world, append(args, m.flags...)...)
	return w
}

// awaitLog waits until the log of the pod a is the text.
func (w *watched) awaitLog(t *testing.T, m machine, text string) {
	t.Helper()
	w.await(t, "the log "+text, func() bool {
		code, out := m.try(t, "logs", "a")
		return code == 0 && out == text+"\n"
	})
}

// hostPod is boxPod on the network of the machine.
func hostPod(name, policy, args string) string {
	return strings.Replace(boxPod(name, policy, args), "spec:\n", "spec:\n  hostNetwork: true\n", 1)
}

// TestWatchRollsBack: a pod that does not get ready after a change runs again as it was before, with what it referred to; also
// after a restart of watch, whose report says so.
func TestWatchRollsBack(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		dir := t.TempDir()
		settings := func(text string) string {
			return "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {TEXT: " + text + "}}\n---\n"
		}
		const pod = `[do, "echo $(TEXT)", sleep], envFrom: [{configMapRef: {name: settings}}]`
		writePod(t, dir, "a", settings("good")+hostPod("a", "Always", pod))
		flags := []string{"--rollback", "--timeout", "5s", "--until", "ready", "--settle", "100ms", dir}
		w := m.watch(t, flags...)
		w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod ready" })
		w.awaitLog(t, m, "good")

		bad := hostPod("a", "Always", pod+`, readinessProbe: {exec: {command: [/bin/box, exit, "1"]}, periodSeconds: 1}`)
		writePod(t, dir, "a", settings("bad")+bad)
		w.await(t, "the rollback", func() bool { return w.status() == "1 of 1 pod ready; default/a: RolledBack" })
		w.awaitLog(t, m, "good")
		why := `the new definition has failed: Timeout: it has not reached its goal within 5s: `
		if got := m.once(t, "describe", "a"); !strings.Contains(got, "RolledBack") || !strings.Contains(got, "the new definition has failed: Timeout") {
			t.Errorf("described:\n%s", got)
		}
		w.end(t, syscall.SIGTERM, 0)

		writePod(t, dir, "a", settings("good")+bad)
		w = m.watch(t, append(flags, "-o", "json")...)
		w.await(t, "the report", func() bool { return w.stdout.String() != "" })
		w.end(t, syscall.SIGTERM, 0)
		var r report.Report
		if err := json.Unmarshal([]byte(w.stdout.String()), &r); err != nil || len(r.Results) != 1 {
			t.Fatalf("%v: %s", err, w.stdout.String())
		}
		checkDocument(t, []string{"watch"}, w.stdout.String())
		if got := r.Results[0]; r.ExitCode != 0 || string(got.Outcome) != "Ready" || got.Reason != "RolledBack" || !strings.HasPrefix(got.Message, why) {
			t.Errorf("exit code %d, %s, %s: %s", r.ExitCode, got.Outcome, got.Reason, got.Message)
		}
		w.awaitLog(t, m, "good")
	})
}

// TestWatchRegistry: when the tag of an image moves in its registry, the pod is replaced, and what has changed is said.
func TestWatchRegistry(t *testing.T) {
	roottest.Require(t)
	m := newMachine(t, "")
	server := registry.Start(t, registry.Options{})
	ref := server.Host + "/app:1"
	push := func(text string) {
		t.Helper()
		img := boxImage(t, ref, 1)
		img.Config.Entrypoint = []string{"/bin/box", "do", "echo " + text, "sleep"}
		server.Push(t, "app:1", img)
	}
	push("one")
	pod := strings.Replace(hostPod("a", "Always", "[]"), "localhost/box:1", ref, 1)
	w := m.watch(t, "--pull", "newer", "--pull-interval", "1s", "--settle", "100ms", podDir(t, pod))
	w.await(t, "the goal", func() bool { return w.status() == "1 of 1 pod running" })
	w.awaitLog(t, m, "one")
	first := m.imageOf(t, "a")

	push("two")
	w.awaitLog(t, m, "two")
	second := m.imageOf(t, "a")
	name, from, _ := strings.Cut(first, "@")
	other, to, _ := strings.Cut(second, "@")
	if name != ref || other != ref || from == "" || to == "" || from == to {
		t.Errorf("images %s and %s", first, second)
	}
	change := `image "` + ref + `" has changed from ` + from + " to " + to
	if got := w.stderr.String(); strings.Count(got, change) == 0 {
		t.Errorf("it does not say %s:\n%s", change, got)
	}
	if got := m.once(t, "events", "a"); !strings.Contains(got, change) {
		t.Errorf("events:\n%s", got)
	}

	// Without the registry, everything stays as it is, also for another watch.
	server.Stop()
	w.await(t, "the warning", func() bool { return strings.Contains(w.stderr.String(), noAnswer) })
	w.end(t, syscall.SIGTERM, 0)
	w = m.watch(t, "--pull", "newer", "--pull-interval", "1h", "--settle", "100ms", "-o", "json", podDir(t, pod))
	w.await(t, "the report", func() bool { return w.stdout.String() != "" })
	w.end(t, syscall.SIGTERM, 0)
	if got := m.imageOf(t, "a"); got != second {
		t.Errorf("image %s, want %s", got, second)
	}
	w.awaitLog(t, m, "two")
}

// imageOf returns the image in the spec of a pod that runs.
func (m machine) imageOf(t *testing.T, pod string) string {
	t.Helper()
	var document report.Pods
	if err := json.Unmarshal([]byte(m.once(t, "ps", "-o", "json")), &document); err != nil {
		t.Fatal(err)
	}
	for _, p := range document.Pods {
		if p.Name == pod {
			return p.Containers[0].Image
		}
	}
	t.Fatalf("no pod %q", pod)
	return ""
}
