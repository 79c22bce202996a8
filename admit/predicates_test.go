package admit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

const (
	noSecondPod = "Predicate VolumeRestrictions failed: node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
	noPorts     = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
	noAffinity  = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
	noTaint     = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
)

// hostPort makes a pod ask for a port of its machine.
func hostPort(ip string, protocol v1.Protocol, ports ...int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range ports {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports,
				v1.ContainerPort{ContainerPort: n, HostPort: n, HostIP: ip, Protocol: protocol})
		}
	}
}

// condition sets conditions of a node.
func condition(types ...v1.NodeConditionType) func(*v1.Node) {
	return func(n *v1.Node) {
		for _, t := range types {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: t, Status: v1.ConditionTrue})
		}
	}
}

func sysctls(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{}
		for _, n := range names {
			p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls, v1.Sysctl{Name: n, Value: "1"})
		}
	}
}

// runsIn gives a pod the runtime kata.
func runsIn(p *v1.Pod) { p.Annotations = map[string]string{podspec.AnnotationRuntimeHandler: "kata"} }

// hasRuntimes makes a node list its container runtimes.
func hasRuntimes(names ...string) func(*v1.Node) {
	return func(n *v1.Node) {
		for _, name := range names {
			n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, v1.NodeRuntimeHandler{Name: name})
		}
	}
}

// overhead is what the sandbox of a pod needs in addition to its containers.
func overhead(list string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Overhead = pod("", 0, list).Spec.Containers[0].Resources.Requests }
}

// limits gives the first container limits equal to its requests, which makes the pod
// Guaranteed if it requests memory and cpu.
func limits(p *v1.Pod) {
	p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests
}

func TestDecideChecks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		node    string
		change  func(*v1.Node)
		running []*v1.Pod
		pod     *v1.Pod
		options Options
		want    []Reason
	}{
		{name: "fits", node: "cpu=1", pod: pod("p", 0, "cpu=1")},
		{
			name: "overhead counts", node: "cpu=1", pod: pod("p", 0, "cpu=1", overhead("cpu=250m")),
			want: []Reason{{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1250, used: 0, capacity: 1000"}},
		},
		{
			name: "no such runtime", node: "cpu=1", pod: pod("p", 0, "", runsIn), options: Options{RuntimeHandlers: []string{"runc"}},
			want: []Reason{{"FailedCreatePodSandBox", `Failed to create pod sandbox: no runtime for "kata" is configured`}},
		},
		{name: "a runtime that is there", node: "cpu=1", pod: pod("p", 0, "", runsIn), options: Options{RuntimeHandlers: []string{"kata", "runc"}}},
		{
			name: "no such runtime on the node", node: "cpu=1", change: hasRuntimes("", "runc"), pod: pod("p", 0, "", runsIn),
			want: []Reason{{"FailedCreatePodSandBox", `Failed to create pod sandbox: no runtime for "kata" is configured`}},
		},
		{name: "a runtime of the node", node: "cpu=1", change: hasRuntimes("kata"), pod: pod("p", 0, "", runsIn)},
		{name: "a node that says nothing of its runtimes", node: "cpu=1", pod: pod("p", 0, "", runsIn)},
		{
			name: "cpu", node: "cpu=3", running: []*v1.Pod{pod("r", 0, "cpu=1500m")}, pod: pod("p", 0, "cpu=2"),
			want: []Reason{{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 1500, capacity: 3000"}},
		},
		{
			name: "memory", node: "memory=1Gi", pod: pod("p", 0, "memory=1025Mi"),
			want: []Reason{{"OutOfmemory", "Node didn't have enough resource: memory, requested: 1074790400, used: 0, capacity: 1073741824"}},
		},
		{
			name: "pods", node: "pods=1", running: []*v1.Pod{pod("r", 0, "")}, pod: pod("p", 0, ""),
			want: []Reason{{"OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"}},
		},
		{
			name: "all resources in the kubelet's order, then by name", node: "pods=0,example.com/b=1",
			pod: pod("p", 0, "example.com/b=2,example.com/a=1,hugepages-2Mi=2Mi,ephemeral-storage=1,memory=1,cpu=1"),
			want: []Reason{
				{"OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 0, capacity: 0"},
				{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 0, capacity: 0"},
				{"OutOfmemory", "Node didn't have enough resource: memory, requested: 1, used: 0, capacity: 0"},
				{"OutOfephemeral-storage", "Node didn't have enough resource: ephemeral-storage, requested: 1, used: 0, capacity: 0"},
				{"OutOfexample.com/a", "Node didn't have enough resource: example.com/a, requested: 1, used: 0, capacity: 0"},
				{"OutOfexample.com/b", "Node didn't have enough resource: example.com/b, requested: 2, used: 0, capacity: 1"},
				{"OutOfhugepages-2Mi", "Node didn't have enough resource: hugepages-2Mi, requested: 2097152, used: 0, capacity: 0"},
			},
		},
		{name: "nothing asked of what is overused", node: "cpu=1", running: []*v1.Pod{pod("r", 0, "cpu=2")}, pod: pod("p", 0, "cpu=0")},
		{name: "what has ended counts for nothing", node: "cpu=1,pods=1", running: []*v1.Pod{pod("r", 0, "cpu=1", phase(v1.PodFailed))}, pod: pod("p", 0, "cpu=1")},
		{
			name: "what has failed and still runs counts", node: "cpu=1",
			running: []*v1.Pod{pod("r", 0, "cpu=1", phase(v1.PodFailed), stillRuns, hostPort("", "TCP", 80))},
			pod:     pod("p", 0, "cpu=1", hostPort("", "TCP", 80)),
			want: []Reason{
				{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 1000, capacity: 1000"},
				{"NodePorts", noPorts + ": host port 80/TCP is in use by pod default/r"},
			},
		},
		{
			name: "more than can be counted", node: "memory=10Gi", pod: pod("p", 0, "", requests(v1.ResourceMemory, "10E")),
			want: []Reason{{"OutOfmemory", "Node didn't have enough resource: memory, requested: 9223372036854775807, used: 0, capacity: 10737418240"}},
		},
		{
			name: "sums beyond what can be counted", node: "memory=9E", running: []*v1.Pod{pod("r", 0, "memory=9E"), pod("s", 0, "memory=9E")}, pod: pod("p", 0, "memory=1"),
			want: []Reason{{"OutOfmemory", "Node didn't have enough resource: memory, requested: 1, used: 9223372036854775807, capacity: 9000000000000000000"}},
		},
		{
			name: "node selector", node: "cpu=1", pod: pod("p", 0, "cpu=2", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }),
			want: []Reason{
				{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000"},
				{"NodeAffinity", noAffinity},
			},
		},
		{name: "node selector met", node: "", pod: pod("p", 0, "", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "here"} })},
		{
			name: "affinity by the node's name", node: "", pod: pod("p", 0, "", affinityTo("there")),
			want: []Reason{{"NodeAffinity", noAffinity}},
		},
		{name: "affinity met by the node's name", node: "", pod: pod("p", 0, "", affinityTo("here"))},
		{
			name: "node name", node: "", pod: pod("p", 0, "", func(p *v1.Pod) { p.Spec.NodeName = "there" }),
			want: []Reason{{"NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"}},
		},
		{
			name: "host port", node: "", running: []*v1.Pod{pod("r", 0, "", hostPort("", "TCP", 80))}, pod: pod("p", 0, "", hostPort("10.0.0.1", "", 80)),
			want: []Reason{{"NodePorts", noPorts + ": host port 80/TCP is in use by pod default/r"}},
		},
		{name: "host port of another address", node: "", running: []*v1.Pod{pod("r", 0, "", hostPort("10.0.0.2", "TCP", 80))}, pod: pod("p", 0, "", hostPort("10.0.0.1", "TCP", 80))},
		{name: "host port of another protocol", node: "", running: []*v1.Pod{pod("r", 0, "", hostPort("", "UDP", 80))}, pod: pod("p", 0, "", hostPort("", "TCP", 80))},
		{
			name: "host port of a sidecar", node: "", running: []*v1.Pod{pod("r", 0, "", hostPort("", "TCP", 80), asInit(true))}, pod: pod("p", 0, "", hostPort("", "TCP", 80)),
			want: []Reason{{"NodePorts", noPorts + ": host port 80/TCP is in use by pod default/r"}},
		},
		{name: "host port of an init container", node: "", running: []*v1.Pod{pod("r", 0, "", hostPort("", "TCP", 80), asInit(false))}, pod: pod("p", 0, "", hostPort("", "TCP", 80))},
		{
			name: "host port that something listens on", node: "", pod: pod("p", 0, "", hostPort("", "TCP", 80)),
			options: Options{Listening: []Listener{{HostPort: HostPort{Protocol: "TCP", IP: "::", Port: 80}}}},
			want:    []Reason{{"NodePorts", noPorts + ": host port 80/TCP is in use"}},
		},
		{
			name: "host port that something listens on, of a critical pod", node: "cpu=1", pod: pod("p", SystemCritical, "cpu=2", hostPort("", "TCP", 80)),
			options: Options{Listening: []Listener{{HostPort: HostPort{IP: "127.0.0.1", Port: 80}, PID: 7, Process: "httpd"}}},
			want: []Reason{
				{"NodePorts", noPorts + ": host port 80/TCP is in use on 127.0.0.1 by process httpd (pid 7)"},
				{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 2000, used: 0, capacity: 1000"},
			},
		},
		{
			name: "claim of one pod", node: "", running: []*v1.Pod{pod("r", 0, "", claim("data"))}, pod: pod("p", 0, "", claim("data")),
			options: onePod("data"),
			want:    []Reason{{"VolumeRestrictions", noSecondPod}},
		},
		{
			name: "claim of one pod, of a critical pod, used by one that is more so", node: "",
			running: []*v1.Pod{pod("r", SystemCritical+1, "", claim("data"))}, pod: pod("p", SystemCritical, "", claim("data")),
			options: onePod("data"),
			want:    []Reason{{"VolumeRestrictions", noSecondPod}},
		},
		{name: "claim of one pod, which has ended", node: "", running: []*v1.Pod{pod("r", 0, "", claim("data"), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })}, pod: pod("p", 0, "", claim("data")), options: onePod("data")},
		{name: "another claim of one pod", node: "", running: []*v1.Pod{pod("r", 0, "", claim("other"))}, pod: pod("p", 0, "", claim("data")), options: onePod("data")},
		{name: "claim of many pods", node: "", running: []*v1.Pod{pod("r", 0, "", claim("data"))}, pod: pod("p", 0, "", claim("data"))},
		{
			name: "claim on another node", node: "", pod: pod("p", 0, "", claim("data")), options: claimOn("data", "there"),
			want: []Reason{{"VolumeBinding", "Predicate VolumeBinding failed: node(s) didn't match PersistentVolume's node affinity"}},
		},
		{
			name: "NFS without its program", node: "", options: Options{NoNFS: true}, pod: pod("p", 0, "", nfs),
			want: []Reason{{"MissingMountHelper", `Volume "share" is mounted by NFS, and mount.nfs is not installed: install nfs-common`}},
		},
		{name: "NFS", node: "", pod: pod("p", 0, "", nfs)},
		{
			name: "claim by NFS without its program", node: "", pod: pod("p", 0, "", claim("data")),
			options: Options{NoNFS: true, Claims: map[types.NamespacedName]Claim{{Namespace: "default", Name: "data"}: {NFS: true}}},
			want:    []Reason{{"MissingMountHelper", `Volume "data" is mounted by NFS, and mount.nfs is not installed: install nfs-common`}},
		},
		{name: "claim on this node", node: "", pod: pod("p", 0, "", claim("data")), options: claimOn("data", "here")},
		{
			name: "taint", node: "", change: taint(v1.TaintEffectNoSchedule), pod: pod("p", 0, ""),
			want: []Reason{{"TaintToleration", noTaint}},
		},
		{
			name: "taint that evicts", node: "", change: taint(v1.TaintEffectNoExecute), pod: pod("p", 0, ""),
			want: []Reason{{"TaintToleration", noTaint}},
		},
		{name: "taint that only prefers", node: "", change: taint(v1.TaintEffectPreferNoSchedule), pod: pod("p", 0, "")},
		{name: "taint tolerated", node: "", change: taint(v1.TaintEffectNoSchedule), pod: pod("p", 0, "", tolerate(v1.Toleration{Key: "level", Value: "5"}))},
		{name: "taint tolerated whatever it is", node: "", change: taint(v1.TaintEffectNoExecute), pod: pod("p", 0, "", tolerate(v1.Toleration{Operator: v1.TolerationOpExists}))},
		{name: "taint tolerated by number", node: "", change: taint(v1.TaintEffectNoSchedule), pod: pod("p", 0, "", tolerate(v1.Toleration{Key: "level", Operator: v1.TolerationOpGt, Value: "4"}))},
		{
			name: "taint not tolerated by number", node: "", change: taint(v1.TaintEffectNoSchedule), pod: pod("p", 0, "", tolerate(v1.Toleration{Key: "level", Operator: v1.TolerationOpLt, Value: "5"})),
			want: []Reason{{"TaintToleration", noTaint}},
		},
		{
			name: "operating system", node: "", pod: pod("p", 0, "", func(p *v1.Pod) {
				p.Spec.OS = &v1.PodOS{Name: v1.Windows}
				p.Labels = map[string]string{v1.LabelOSStable: "windows"}
			}),
			want: []Reason{
				{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
				{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"},
			},
		},
		{
			name: "strict supplemental groups", node: "", pod: pod("p", 0, "", strictGroups),
			want: []Reason{{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"}},
		},
		{
			name: "strict supplemental groups supported", node: "", pod: pod("p", 0, "", strictGroups),
			change: func(n *v1.Node) { yes := true; n.Status.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &yes} },
		},
		{
			name: "AppArmor", node: "", pod: pod("p", 0, "", appArmor),
			want: []Reason{{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}},
		},
		{name: "AppArmor enabled", node: "", pod: pod("p", 0, "", appArmor), options: Options{AppArmor: true}},
		{
			name: "memory pressure", node: "", change: condition(v1.NodeMemoryPressure), pod: pod("p", 0, ""),
			want: []Reason{{"Evicted", "The node had condition: [MemoryPressure]. "}},
		},
		{name: "memory pressure tolerated", node: "", change: condition(v1.NodeMemoryPressure), pod: pod("p", 0, "", tolerate(v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}))},
		{name: "memory pressure for a burstable pod", node: "cpu=1", change: condition(v1.NodeMemoryPressure), pod: pod("p", 0, "cpu=1")},
		{name: "pressure for a critical pod", node: "", change: condition(v1.NodeMemoryPressure, v1.NodeDiskPressure), pod: pod("p", SystemCritical, "")},
		{
			name: "disk pressure", node: "cpu=1", change: condition(v1.NodeMemoryPressure, v1.NodeDiskPressure), pod: pod("p", 0, "cpu=1"),
			want: []Reason{{"Evicted", "The node had condition: [DiskPressure MemoryPressure]. "}},
		},
		{name: "safe sysctl", node: "", pod: pod("p", 0, "", sysctls("net/ipv4/tcp_syncookies", "kernel.shm_rmid_forced"))},
		{
			name: "unsafe sysctl", node: "", pod: pod("p", 0, "", sysctls("kernel.msgmax")),
			want: []Reason{{"SysctlForbidden", `forbidden sysctl: "kernel.msgmax" not allowlisted`}},
		},
		{name: "unsafe sysctl allowed", node: "", pod: pod("p", 0, "", sysctls("kernel.msgmax", "net.core.somaxconn")), options: Options{AllowUnsafeSysctls: []string{"kernel.msg*", "net.core.somaxconn"}}},
		{
			name: "sysctl of the host's network", node: "", pod: pod("p", 0, "", sysctls("net.ipv4.tcp_syncookies"), func(p *v1.Pod) { p.Spec.HostNetwork = true }),
			want: []Reason{{"SysctlForbidden", `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled`}},
		},
		{
			name: "sysctl of the host's ipc", node: "", pod: pod("p", 0, "", sysctls("kernel.shm_rmid_forced"), func(p *v1.Pod) { p.Spec.HostIPC = true }),
			want: []Reason{{"SysctlForbidden", `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled`}},
		},
		{
			name: "sysctl that the kernel shares", node: "", change: func(n *v1.Node) { n.Status.NodeInfo.KernelVersion = "4.14.9-x" }, pod: pod("p", 0, "", sysctls("net.ipv4.tcp_rmem")),
			want: []Reason{{"SysctlForbidden", `forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted`}},
		},
		{
			name: "critical and too big", node: "cpu=1", running: []*v1.Pod{pod("r", 0, "cpu=500m")}, pod: pod("p", SystemCritical, "cpu=1100m"),
			want: []Reason{
				{"UnexpectedAdmissionError", "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 100), ]"},
				{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1100, used: 500, capacity: 1000"},
			},
		},
		{
			name: "critical and refused for more than resources", node: "cpu=1", running: []*v1.Pod{pod("r", 0, "cpu=1")}, pod: pod("p", SystemCritical, "cpu=1", affinityTo("there")),
			want: []Reason{
				{"NodeAffinity", noAffinity},
				{"OutOfcpu", "Node didn't have enough resource: cpu, requested: 1000, used: 1000, capacity: 1000"},
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := node(test.node)
			if test.change != nil {
				test.change(n)
			}
			plan := Decide(n, test.running, []*v1.Pod{test.pod}, test.options)
			d := plan.Decisions[0]
			if diff := cmp.Diff(test.want, d.Reasons); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			want := Decision{Pod: test.pod, Verdict: Admitted}
			if len(test.want) > 0 {
				want = Decision{Pod: test.pod, Verdict: Rejected, Reason: test.want[0].Reason, Message: test.want[0].Message, Reasons: test.want}
			}
			if diff := cmp.Diff(want, d); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

func phase(p v1.PodPhase) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Status.Phase = p } }

// ignored makes the pod's failure one that its Job does not need.
func ignored(p *v1.Pod) { p.Status.Reason = "FailureIgnored" }

// stillRuns makes a container of the pod run.
func stillRuns(p *v1.Pod) {
	p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
}

func taint(effect v1.TaintEffect) func(*v1.Node) {
	return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "level", Value: "5", Effect: effect}} }
}

func tolerate(t v1.Toleration) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}

func affinityTo(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{name},
			}}}},
		}}}
	}
}

// asInit makes the first container an init container, or a sidecar.
func asInit(sidecar bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c := p.Spec.Containers[0]
		if always := v1.ContainerRestartPolicyAlways; sidecar {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		p.Spec.Containers = []v1.Container{{Name: "other"}}
	}
}

func strictGroups(p *v1.Pod) {
	strict := v1.SupplementalGroupsPolicyStrict
	p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &strict}
}

func appArmor(p *v1.Pod) {
	p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
}

func claim(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}

func onePod(name string) Options {
	return Options{Claims: map[types.NamespacedName]Claim{{Namespace: "default", Name: name}: {OnePod: true}}}
}

func claimOn(name, node string) Options {
	return Options{Claims: map[types.NamespacedName]Claim{{Namespace: "default", Name: name}: {Nodes: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}}
}

// TestClaimOfOnePod: a critical pod preempts the pod that uses the claim, and of two others the
// first one may use it.
func TestClaimOfOnePod(t *testing.T) {
	t.Parallel()
	holds, asks := pod("r", 0, "", claim("data")), pod("p", SystemCritical, "", claim("data"))
	plan := Decide(node(""), []*v1.Pod{holds}, []*v1.Pod{asks}, onePod("data"))
	if d := plan.Decisions; len(d) != 2 || d[0].Verdict != Admitted || d[1].Verdict != Preempted || d[1].By != asks {
		t.Errorf("a critical pod: %+v", d)
	}
	a, b := pod("a", 0, "", claim("data")), pod("b", 5, "", claim("data"))
	plan = Decide(node(""), nil, []*v1.Pod{a, b}, onePod("data"))
	if d := plan.Decisions; d[0].Verdict != Rejected || d[1].Verdict != Admitted {
		t.Errorf("two pods: %+v", d)
	}
	ephemeral := pod("a", 0, "", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
	})
	if got := onePod("a-tmp").onePodClaims(ephemeral); len(got) != 1 || got[0].Name != "a-tmp" {
		t.Errorf("the claim of an ephemeral volume: %v", got)
	}
}

func nfs(p *v1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "share", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "s", Path: "/"}}})
}
