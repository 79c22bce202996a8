package admit

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit/nodeinfo"
)

func TestListeners(t *testing.T) {
	t.Parallel()
	m := fstest.MapFS{}
	file := func(name, text string, mode fs.FileMode) { m[name] = &fstest.MapFile{Data: []byte(text), Mode: mode} }
	const rest = " 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 "
	file("proc/net/tcp", "0: 0100007F:0050"+rest+"100\n1: 00000000:0051"+rest+"101\n2: 00000000:0052"+rest+"102\n3: 00000000:0053"+rest+"103\n", 0o444)
	for pid, socket := range map[string]string{"7": "100", "8": "101", "9": "101", "10": "102"} {
		file("proc/"+pid+"/fd/3", "socket:["+socket+"]", fs.ModeSymlink)
		file("proc/"+pid+"/comm", "p"+pid+"\n", 0o444)
	}
	podOf := func(p nodeinfo.Process) types.UID {
		if p.PID == 9 {
			return "uid-r"
		}
		return ""
	}
	socket := func(ip string, port int32) HostPort { return HostPort{Protocol: v1.ProtocolTCP, IP: ip, Port: port} }
	for _, tt := range []struct {
		name string
		pods []*v1.Pod
		want []Listener
	}{
		{"no host ports", []*v1.Pod{pod("a", 0, "")}, nil},
		{"other ports", []*v1.Pod{pod("a", 0, "", hostPort("", "UDP", 80)), pod("b", 0, "", hostPort("10.0.0.1", "TCP", 80))}, nil},
		{"a process", []*v1.Pod{pod("a", 0, "", hostPort("", "TCP", 80))}, []Listener{{socket("127.0.0.1", 80), "", 7, "p7"}}},
		{"several processes, one of a pod", []*v1.Pod{pod("a", 0, "", hostPort("", "TCP", 81))}, []Listener{{socket("0.0.0.0", 81), "uid-r", 9, "p9"}}},
		{"no process", []*v1.Pod{pod("a", 0, "", hostPort("", "TCP", 83))}, []Listener{{HostPort: socket("0.0.0.0", 83)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Listeners(m, tt.pods, podOf)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	broken := fstest.MapFS{"proc/net/tcp": {Data: []byte("0: x:0050 00000000:0000 0A\n")}}
	if _, err := Listeners(broken, []*v1.Pod{pod("a", 0, "", hostPort("", "TCP", 80))}, podOf); err == nil {
		t.Error("no error")
	}
}

// A socket that a pod has not declared is that pod's, and free once the pod is stopped.
func TestUndeclaredSocket(t *testing.T) {
	t.Parallel()
	web := hostPort("", v1.ProtocolTCP, 80)
	named := func(uid types.UID) func(*v1.Pod) { return func(p *v1.Pod) { p.UID = uid } }
	old := func(priority int32) []*v1.Pod { return []*v1.Pod{pod("old", priority, "", named("uid-old"))} }
	listening := Options{Listening: []Listener{{HostPort: HostPort{Protocol: v1.ProtocolTCP, IP: "::", Port: 80}, Pod: "uid-old", PID: 7, Process: "etcd"}}}
	pruning := listening
	pruning.Prune = func(*v1.Pod) bool { return true }
	inUse := []Reason{{"NodePorts", noPorts + ": host port 80/TCP is in use by pod default/old"}}
	for _, tt := range []struct {
		name    string
		running []*v1.Pod
		pods    []*v1.Pod
		options Options
		want    []Reason // of the last pod
		stops   []string
	}{
		{"replaced", old(0), []*v1.Pod{pod("old", 0, "", web, named("new"))}, listening, nil, []string{"old"}},
		{"kept", old(0), []*v1.Pod{pod("old", 0, "", named("uid-old")), pod("p", 0, "", web)}, listening, inUse, nil},
		{"not in the input", old(0), []*v1.Pod{pod("p", 0, "", web)}, listening, inUse, nil},
		{"pruned", old(0), []*v1.Pod{pod("p", 0, "", web)}, pruning, nil, []string{"old"}},
		{"preempted", old(0), []*v1.Pod{pod("p", SystemCritical, "", web)}, listening, nil, []string{"old"}},
		{"as critical", old(SystemCritical), []*v1.Pod{pod("p", SystemCritical, "", web)}, listening, inUse, nil},
		{
			"the replacement is rejected", old(0), []*v1.Pod{pod("old", 0, "cpu=9", web, named("new")), pod("p", 0, "", web)}, listening, inUse, nil,
		},
		{
			"a pod of another root", nil,
			[]*v1.Pod{pod("p", 0, "", web)},
			listening,
			[]Reason{{"NodePorts", noPorts + ": host port 80/TCP is in use by process etcd (pid 7)"}},
			nil,
		},
		{
			"requested twice", nil,
			[]*v1.Pod{pod("a", 0, "", web), pod("p", 0, "", web)},
			Options{},
			[]Reason{{"NodePorts", noPorts + ": host port 80/TCP is requested by pod default/a too"}},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			plan := Decide(node("cpu=1"), tt.running, tt.pods, tt.options)
			if diff := cmp.Diff(tt.want, plan.Decisions[len(tt.pods)-1].Reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			var stops []string
			for _, d := range plan.Removals() {
				stops = append(stops, d.Pod.Name)
			}
			if diff := cmp.Diff(tt.stops, stops); diff != "" {
				t.Errorf("stopped (-want +got):\n%s", diff)
			}
		})
	}
}
