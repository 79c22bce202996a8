package runtime_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/host"
)

// gadgets are devices that only name themselves in the environment.
func gadgets(t *testing.T, names ...string) *host.Devices {
	t.Helper()
	var devices []string
	for _, name := range names {
		devices = append(devices, fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["GADGET_%s=1"]}}`, name, name))
	}
	dir := t.TempDir()
	text := `{"cdiVersion":"0.6.0","kind":"v.com/gadget","devices":[` + strings.Join(devices, ",") + `]}`
	if err := os.WriteFile(filepath.Join(dir, "gadgets.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	registry, invalid, err := host.OpenDevices([]string{dir})
	if err != nil || len(invalid) > 0 {
		t.Fatal(err, invalid)
	}
	return registry
}

// withGadgets returns the node with devices, and what each pod has been given.
func withGadgets(t *testing.T, names ...string) (*node, func() map[string]string) {
	n := newNode(t)
	n.devices = gadgets(t, names...)
	var mu sync.Mutex
	given := map[string]string{}
	program := n.engine.Program
	n.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range c.Spec.Process.Env {
			if name, ok := strings.CutPrefix(e, "GADGET_"); ok {
				pod := c.Labels[engine.LabelPodName]
				given[pod] = strings.TrimSpace(given[pod] + " " + strings.TrimSuffix(name, "=1"))
			}
		}
		return program(c)
	}
	return n, func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return given
	}
}

func gadgetPod(name string, n int64, command string) *v1.Pod {
	pod := testPod(v1.RestartPolicyNever, command)
	pod.Name, pod.UID = name, types.UID("uid-"+name)
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"v.com/gadget": *resource.NewQuantity(n, resource.DecimalSI)}
	return pod
}

// TestDevicesAreExclusive: also of pods that start at once, and of a later process.
func TestDevicesAreExclusive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, given := withGadgets(t, "a", "b", "c")
		first := n.pods(t.Context(), t)
		one, two := gadgetPod("one", 1, "sleep"), gadgetPod("two", 1, "sleep")
		var wg sync.WaitGroup
		for _, pod := range []*v1.Pod{one, two} {
			wg.Go(func() {
				if err := first.Sync(t.Context(), pod); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := []string{given()["one"], given()["two"]}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
			t.Errorf("two at once (-want +got):\n%s", diff)
		}
		later := n.pods(t.Context(), t)
		quick := gadgetPod("quick", 1, "exit 0")
		for _, pod := range []*v1.Pod{quick, gadgetPod("none", 0, "sleep")} {
			if err := later.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		// One that has ended needs its own no longer, and one that is stopped frees its own.
		if err := later.Stop(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		three := gadgetPod("three", 2, "sleep")
		if err := later.Sync(t.Context(), three); err != nil {
			t.Fatal(err)
		}
		freed := strings.Fields(given()["three"])
		if given()["quick"] != "c" || len(freed) != 2 || slices.Contains(freed, given()["two"]) || given()["none"] != "" {
			t.Errorf("later: %v", given())
		}
		err := later.Sync(t.Context(), gadgetPod("four", 1, "sleep"))
		if err == nil || !strings.Contains(err.Error(), "but 0 are available") {
			t.Errorf("no device is free: %v", err)
		}
		four := gadgetPod("four", 1, "sleep")
		if err := later.Fail(t.Context(), four, "Unlucky", "no device is free"); err != nil {
			t.Error(err)
		}
		if st, err := later.Status(t.Context(), four); err != nil || st.Reason != "Unlucky" {
			t.Errorf("it has failed with %q, %v", st.Reason, err)
		}
	})
}

// TestDevicesStay: a pod has the same devices after a reboot.
func TestDevicesStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, given := withGadgets(t, "a", "b")
		ctx, cancel := context.WithCancel(t.Context())
		first := n.pods(ctx, t)
		one, two := gadgetPod("one", 1, "sleep"), gadgetPod("two", 1, "sleep")
		one.Spec.RestartPolicy, two.Spec.RestartPolicy = v1.RestartPolicyAlways, v1.RestartPolicyAlways
		for _, pod := range []*v1.Pod{one, two} {
			if err := first.Sync(ctx, pod); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		n.engine.Lose()
		n.sandboxes.Lose()
		clear(given())
		later := n.pods(t.Context(), t)
		if err := later.Sync(t.Context(), two); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"two": "b"}, given()); diff != "" {
			t.Errorf("after a reboot (-want +got):\n%s", diff)
		}
		// Without its devices a pod is not started.
		n.devices = nil
		err := n.pods(t.Context(), t).Sync(t.Context(), one)
		if err == nil || !strings.Contains(err.Error(), "v.com/gadget=a") || given()["one"] != "" {
			t.Errorf("the device is gone: %v, started with %q", err, given()["one"])
		}
	})
}
