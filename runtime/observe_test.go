package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestTerminationMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep 1s")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(n.root, "pods", "uid-1", "containers", "c0", "0")
		if err := os.WriteFile(path, []byte(strings.Repeat("x", 5000)+"the end"), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		s := wantStates(t.Context(), t, p, pod, "c0=exit0")
		msg := s.ContainerStatuses[0].State.Terminated.Message
		if len(msg) != 4096 || !strings.HasSuffix(msg, "the end") {
			t.Errorf("message of %d bytes, ends in %q; want the last 4096", len(msg), msg[max(0, len(msg)-10):])
		}
	})
}

func TestTerminationMessageFallsBackToLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "exit 3 the end", "exit 0 well done", "exit 3 unasked")
		pod.Spec.Containers[0].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		pod.Spec.Containers[1].TerminationMessagePolicy = v1.TerminationMessageFallbackToLogsOnError
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s := wantStates(t.Context(), t, p, pod, "c0=exit3", "c1=exit0", "c2=exit3")
		for i, want := range []string{"the end\n", "", ""} {
			if got := s.ContainerStatuses[i].State.Terminated.Message; got != want {
				t.Errorf("message of c%d = %q, want %q", i, got, want)
			}
		}
	})
}
