package runtime_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

// gadgets are devices that only name themselves in the environment.
type gadgets []string

func (g gadgets) Kinds() map[string][]string { return map[string][]string{"v.com/gadget": g} }

func (gadgets) Inject(spec *specs.Spec, devices []string) error {
	spec.Process.Env = append(spec.Process.Env, "GADGETS="+strings.Join(devices, " "))
	return nil
}

// withGadgets returns the node with devices, and what each pod has been given.
func withGadgets(t *testing.T, names ...string) (*node, func() map[string]string) {
	n := newNode(t)
	n.devices = gadgets(names)
	var mu sync.Mutex
	given := map[string]string{}
	program := n.engine.Program
	n.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range c.Spec.Process.Env {
			if value, ok := strings.CutPrefix(e, "GADGETS="); ok {
				given[c.Labels[engine.LabelPodName]] = value
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
	})
}
