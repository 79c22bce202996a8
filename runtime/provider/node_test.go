package provider_test

import (
	"io/fs"
	"log/slog"
	goruntime "runtime"
	"strconv"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runtime/provider"
)

func detect(fsys fs.FS) func() (*v1.Node, error) {
	return func() (*v1.Node, error) {
		return admit.Detect(fsys, admit.DetectOptions{NodeOptions: admit.NodeOptions{Name: "edge"}})
	}
}

// TestNode: what the machine has, and what a cluster wants to know besides.
func TestNode(t *testing.T) {
	t.Parallel()
	machine := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 8388608 kB\nMemAvailable: 1000 kB\n")}}
	registered, err := provider.NewNode(detect(machine), provider.NodeOptions{
		Addresses: []string{"192.0.2.7"}, Port: 10250, Version: "v1.37.0", Runtime: "containerd://2",
	}, slog.New(slog.DiscardHandler))
	must(t, err)
	n := registered.Object()
	conditions := map[v1.NodeConditionType]v1.ConditionStatus{}
	for _, c := range n.Status.Conditions {
		conditions[c.Type] = c.Status
		if c.LastHeartbeatTime.IsZero() || c.LastTransitionTime.IsZero() {
			t.Errorf("no time: %+v", c)
		}
	}
	want(t, "conditions", conditions, map[v1.NodeConditionType]v1.ConditionStatus{
		v1.NodeMemoryPressure: v1.ConditionTrue, v1.NodeDiskPressure: v1.ConditionFalse, v1.NodeReady: v1.ConditionTrue,
	})
	want(t, "addresses", n.Status.Addresses, []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}, {Type: v1.NodeHostName, Address: "edge"}})
	want(t, "processors", n.Status.Allocatable.Cpu().String(), strconv.Itoa(goruntime.NumCPU()))
	want(t, "port", n.Status.DaemonEndpoints.KubeletEndpoint.Port, int32(10250))
	want(t, "versions", n.Status.NodeInfo.KubeletVersion+" "+n.Status.NodeInfo.ContainerRuntimeVersion, "v1.37.0 containerd://2")
}

// TestNodeIsDescribedAgain: the cluster learns when the machine runs short of memory, and when it does no
// longer.
func TestNodeIsDescribedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the rest
		machine := fstest.MapFS{}
		var told []string
		has := func(available string) {
			mu.Lock()
			defer mu.Unlock()
			told = nil
			machine["proc/meminfo"] = &fstest.MapFile{Data: []byte("MemTotal: 8388608 kB\nMemAvailable: " + available + " kB\n")}
		}
		has("8000000")
		n, err := provider.NewNode(func() (*v1.Node, error) {
			mu.Lock()
			defer mu.Unlock()
			return detect(machine)()
		}, provider.NodeOptions{}, slog.New(slog.DiscardHandler))
		must(t, err)
		begun := time.Now()
		n.NotifyNodeStatus(t.Context(), func(node *v1.Node) {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range node.Status.Conditions {
				if c.Type != v1.NodeDiskPressure {
					told = append(told, string(c.Type)+"="+string(c.Status)+" since "+c.LastTransitionTime.Sub(begun).String())
				}
			}
		})
		for _, available := range []string{"8000000", "1000", "1000"} {
			has(available)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		want(t, "at last", told, []string{"MemoryPressure=True since 2m0s", "Ready=True since 0s"})
	})
}
