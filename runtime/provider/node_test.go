package provider_test

import (
	goruntime "runtime"
	"strconv"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runtime/provider"
)

// TestRegisteredNode: what the machine has, and what a cluster wants to know besides.
func TestRegisteredNode(t *testing.T) {
	t.Parallel()
	machine, err := admit.Detect(fstest.MapFS{
		"proc/meminfo": {Data: []byte("MemTotal: 8388608 kB\nMemAvailable: 1000 kB\n")},
	}, admit.DetectOptions{NodeOptions: admit.NodeOptions{Name: "edge"}})
	must(t, err)
	n := provider.RegisteredNode(machine, provider.NodeOptions{Addresses: []string{"192.0.2.7"}, Port: 10250, Version: "v1.37.0", Runtime: "containerd://2"})
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
	if len(machine.Status.Addresses) > 0 {
		t.Error("the argument was changed")
	}
}
