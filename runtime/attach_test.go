package runtime_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestProcesses: those of the containers that run.
func TestProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, pod := newNode(t), testPod(v1.RestartPolicyNever, "sleep", "exit 0")
		p := n.pods(t.Context(), t)
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		got, err := p.Processes(t.Context(), pod)
		want := map[string]int{pod.Spec.Containers[0].Name: 1}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// TestFiles: those of a container that runs or has ended, but not of one that has not begun.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, pod := newNode(t), testPod(v1.RestartPolicyNever, "sleep", "exit 0")
		n.engine.Dir = dir
		p := n.pods(t.Context(), t)
		open := func(want string) {
			t.Helper()
			for _, c := range pod.Spec.Containers {
				f, err := p.Files(t.Context(), pod, c.Name, false)
				if err == nil {
					err = f.Close()
				}
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", c.Name, err, want)
				}
			}
		}
		open("has not been started")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		open("")
	})
}
