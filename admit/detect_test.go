package admit

import (
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit/nodeinfo"
)

// machine is one of 8 GiB and 16 huge pages of 2 MiB.
func machine(available string) fstest.MapFS {
	return fstest.MapFS{
		"proc/meminfo":                   {Data: []byte("MemTotal: 8388608 kB\nMemAvailable: " + available + " kB\n")},
		"proc/sys/kernel/osrelease":      {Data: []byte("6.1.0\n")},
		"proc/sys/kernel/random/boot_id": {Data: []byte("boot\n")},
		"etc/machine-id":                 {Data: []byte("machine\n")},
		"usr/lib/os-release":             {Data: []byte("ID=any\nPRETTY_NAME=\"Any OS 1\"\n")},
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    {Data: []byte("16\n")},
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": {Data: []byte("0\n")},
	}
}

// texts returns a list of resources as text.
func texts(list v1.ResourceList) map[string]string {
	all := map[string]string{}
	for name, q := range list {
		all[string(name)] = q.String()
	}
	return all
}

// parse reads resources that are known to be valid.
func parse(t *testing.T, list string) v1.ResourceList {
	t.Helper()
	resources, err := ParseResources(list)
	if err != nil {
		t.Fatal(err)
	}
	return resources
}

func TestDetect(t *testing.T) {
	t.Parallel()
	processors := strconv.Itoa(goruntime.NumCPU())
	disk := nodeinfo.Filesystem{Capacity: 100 << 30, Available: 50 << 30, Inodes: 1000, InodesFree: 500}
	tests := []struct {
		name        string
		options     DetectOptions
		available   string
		capacity    map[string]string
		allocatable map[string]string
		pressures   []v1.NodeConditionType
	}{
		{
			name: "as it is", available: "4194304", options: DetectOptions{NodeFS: disk},
			capacity:    map[string]string{"cpu": processors, "memory": "8Gi", "ephemeral-storage": "100Gi", "hugepages-2Mi": "32Mi", "hugepages-1Gi": "0", "pods": "110"},
			allocatable: map[string]string{"cpu": processors, "memory": "8060Mi", "ephemeral-storage": "96636764000", "hugepages-2Mi": "32Mi", "hugepages-1Gi": "0", "pods": "110"},
		},
		{
			name: "overridden and reserved", available: "4194304",
			options:     DetectOptions{NodeOptions: NodeOptions{Capacity: parse(t, "cpu=2,memory=1Gi,example.com/gpu=4,hugepages-2Mi=0,pods=7"), Reserved: parse(t, "cpu=500m,memory=100Mi,example.com/gpu=5")}},
			capacity:    map[string]string{"cpu": "2", "memory": "1Gi", "example.com/gpu": "4", "hugepages-2Mi": "0", "hugepages-1Gi": "0", "pods": "7"},
			allocatable: map[string]string{"cpu": "1500m", "memory": "824Mi", "example.com/gpu": "0", "hugepages-2Mi": "0", "hugepages-1Gi": "0", "pods": "7"},
		},
		{
			name: "short of everything", available: "102399",
			options:     DetectOptions{NodeFS: nodeinfo.Filesystem{Capacity: 1000, Available: 99, Inodes: 100, InodesFree: 50}, NodeOptions: NodeOptions{Capacity: parse(t, "memory=1Mi")}},
			capacity:    map[string]string{"cpu": processors, "memory": "1Mi", "ephemeral-storage": "1k", "hugepages-2Mi": "32Mi", "hugepages-1Gi": "0", "pods": "110"},
			allocatable: map[string]string{"cpu": processors, "memory": "0", "ephemeral-storage": "900", "hugepages-2Mi": "32Mi", "hugepages-1Gi": "0", "pods": "110"},
			pressures:   []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.options.Name = "here"
			n, err := Detect(machine(test.available), test.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.capacity, texts(n.Status.Capacity)); diff != "" {
				t.Errorf("capacity (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.allocatable, texts(n.Status.Allocatable)); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
			var pressures []v1.NodeConditionType
			for _, c := range n.Status.Conditions {
				if c.Status == v1.ConditionTrue {
					pressures = append(pressures, c.Type)
				}
			}
			if diff := cmp.Diff(test.pressures, pressures); diff != "" {
				t.Errorf("pressures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDetectPressureOfFilesystems(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		nodeFS, image nodeinfo.Filesystem
		want          v1.ConditionStatus
	}{
		{"enough space", nodeinfo.Filesystem{Capacity: 100, Available: 10, Inodes: 100, InodesFree: 5}, nodeinfo.Filesystem{Capacity: 100, Available: 15, Inodes: 100, InodesFree: 5}, v1.ConditionFalse},
		{"nothing known", nodeinfo.Filesystem{}, nodeinfo.Filesystem{}, v1.ConditionFalse},
		{"no count of inodes", nodeinfo.Filesystem{Capacity: 100, Available: 10}, nodeinfo.Filesystem{}, v1.ConditionFalse},
		{"bytes", nodeinfo.Filesystem{Capacity: 100, Available: 9}, nodeinfo.Filesystem{}, v1.ConditionTrue},
		{"inodes", nodeinfo.Filesystem{Capacity: 100, Available: 50, Inodes: 100, InodesFree: 4}, nodeinfo.Filesystem{}, v1.ConditionTrue},
		{"bytes for images", nodeinfo.Filesystem{}, nodeinfo.Filesystem{Capacity: 100, Available: 14}, v1.ConditionTrue},
		{"inodes for images", nodeinfo.Filesystem{}, nodeinfo.Filesystem{Capacity: 100, Available: 50, Inodes: 100, InodesFree: 4}, v1.ConditionTrue},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n, err := Detect(machine("4194304"), DetectOptions{NodeOptions: NodeOptions{Name: "here"}, NodeFS: test.nodeFS, ImageFS: test.image})
			if err != nil {
				t.Fatal(err)
			}
			if got := n.Status.Conditions[1]; got.Type != v1.NodeDiskPressure || got.Status != test.want {
				t.Errorf("%+v, want %s", got, test.want)
			}
		})
	}
}

func TestDetectNames(t *testing.T) {
	t.Parallel()
	n, err := Detect(machine("4194304"), DetectOptions{NodeOptions: NodeOptions{Name: "here", Labels: map[string]string{"disk": "ssd", v1.LabelArchStable: "other"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{v1.LabelHostname: "here", v1.LabelOSStable: "linux", v1.LabelArchStable: "other", "disk": "ssd"}
	if diff := cmp.Diff(want, n.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if i := n.Status.NodeInfo; i.OSImage != "Any OS 1" || i.MachineID != "machine" || i.BootID != "boot" {
		t.Errorf("node info %+v", i)
	}
	if n.Name != "here" || n.Status.NodeInfo.KernelVersion != "6.1.0" || n.Status.NodeInfo.Architecture != goruntime.GOARCH || !*n.Status.Features.SupplementalGroupsPolicy {
		t.Errorf("%+v", n)
	}
	if _, err := Detect(fstest.MapFS{}, DetectOptions{NodeOptions: NodeOptions{Name: "here"}}); err == nil || !strings.HasPrefix(err.Error(), `describing node "here": reading the machine's memory: `) {
		t.Errorf("got %v", err)
	}
}

func TestDetectDevices(t *testing.T) {
	t.Parallel()
	m := machine("4194304")
	two := map[string]int64{"example.com/gpu": 2}
	for _, test := range []struct {
		name    string
		options DetectOptions
		want    string
	}{
		{"none", DetectOptions{}, "0"},
		{"counted", DetectOptions{Devices: two}, "2"},
		{"overridden", DetectOptions{Devices: two, NodeOptions: NodeOptions{Capacity: parse(t, "example.com/gpu=1")}}, "1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n, err := Detect(m, test.options)
			if err != nil {
				t.Fatal(err)
			}
			if q := n.Status.Allocatable["example.com/gpu"]; q.String() != test.want {
				t.Errorf("%s devices, want %s", q.String(), test.want)
			}
		})
	}
}

func TestFromNodeFile(t *testing.T) {
	t.Parallel()
	document := func(capacity, allocatable string) *v1.Node {
		n := &v1.Node{Status: v1.NodeStatus{Capacity: parse(t, capacity)}}
		n.Name, n.Labels = "there", map[string]string{"zone": "a", v1.LabelArchStable: "arm64"}
		n.Spec.Taints = []v1.Taint{{Key: "x", Effect: v1.TaintEffectNoSchedule}}
		if allocatable != "" {
			n.Status.Allocatable = parse(t, allocatable)
		}
		return n
	}
	tests := []struct {
		name     string
		document *v1.Node
		options  NodeOptions
		want     map[string]string
	}{
		{"capacity alone", document("cpu=4,memory=1Gi,ephemeral-storage=10Gi,hugepages-2Mi=100Mi", ""), NodeOptions{}, map[string]string{"cpu": "4", "memory": "824Mi", "ephemeral-storage": "9663676400", "hugepages-2Mi": "100Mi", "pods": "110"}},
		{"allocatable", document("cpu=4,memory=1Gi,pods=20", "cpu=3,memory=1Gi,pods=10"), NodeOptions{}, map[string]string{"cpu": "3", "memory": "1Gi", "pods": "10"}},
		{"allocatable in part", document("cpu=4,memory=1Gi,pods=20", "cpu=3"), NodeOptions{}, map[string]string{"cpu": "3", "memory": "924Mi", "pods": "20"}},
		{"nothing but allocatable", document("", "cpu=3"), NodeOptions{Capacity: parse(t, "pods=5")}, map[string]string{"cpu": "3", "pods": "5"}},
		{
			"overridden and reserved", document("cpu=4,pods=20", "cpu=3,pods=20"),
			NodeOptions{Capacity: parse(t, "cpu=8,example.com/gpu=2"), Reserved: parse(t, "cpu=1,pods=1")},
			map[string]string{"cpu": "7", "example.com/gpu": "2", "pods": "19"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before := test.document.DeepCopy()
			n := FromNodeFile(test.document, test.options)
			if diff := cmp.Diff(test.want, texts(n.Status.Allocatable)); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.document); diff != "" {
				t.Errorf("the document was changed:\n%s", diff)
			}
			if n.Name != "there" || len(n.Spec.Taints) != 1 || n.Labels["zone"] != "a" || n.Labels[v1.LabelHostname] != "there" || n.Labels[v1.LabelArchStable] != "arm64" {
				t.Errorf("%+v", n.ObjectMeta)
			}
		})
	}
	n := FromNodeFile(document("cpu=1", ""), NodeOptions{Name: "other", Labels: map[string]string{"zone": "b"}})
	if n.Name != "other" || n.Labels["zone"] != "b" || n.Labels[v1.LabelHostname] != "other" {
		t.Errorf("%+v", n.ObjectMeta)
	}
	if f := FromNodeFile(document("cpu=1", ""), NodeOptions{}).Status.Features; f == nil || !*f.SupplementalGroupsPolicy {
		t.Errorf("a document without features has %+v, want those of the runtime", f)
	}
}

func TestValidateSysctls(t *testing.T) {
	t.Parallel()
	if err := ValidateSysctls([]string{"kernel.msg*", "net.core.somaxconn", "fs.mqueue.*"}); err != nil {
		t.Error(err)
	}
	if err := ValidateSysctls([]string{"vm.swappiness"}); err == nil || err.Error() != `sysctl "vm.swappiness": not known to be namespaced` {
		t.Errorf("got %v", err)
	}
}
