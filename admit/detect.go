package admit

import (
	"fmt"
	"io/fs"
	"maps"
	goruntime "runtime"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/admit/nodeinfo"
)

// maxPods is how many pods a node takes by default (the kubelet's maxPods).
const maxPods = 110

// The kubelet's defaults of evictionHard. It computes percentages in single precision.
const (
	evictMemoryAvailable   = 100 << 20
	evictNodeFSAvailable   = float32(0.1)
	evictNodeFSInodesFree  = float32(0.05)
	evictImageFSAvailable  = float32(0.15)
	evictImageFSInodesFree = float32(0.05)
)

// NodeOptions change what a machine or a file says of a node.
type NodeOptions struct {
	Name     string            // overrides a file's, if not empty
	Labels   map[string]string // override kubernetes.io/{hostname,os,arch} and a file's
	Capacity v1.ResourceList   // overrides what is found, and adds extended resources
	Reserved v1.ResourceList   // kept from pods
	Others   []Other           // have what pods do not get either
}

// DetectOptions say what is known of the machine besides its /proc and /sys.
type DetectOptions struct {
	NodeOptions
	NodeFS  nodeinfo.Filesystem // holds volumes and logs; without it there is no ephemeral-storage
	ImageFS nodeinfo.Filesystem // holds images; ignored when zero
	// Devices counts the devices of each kind that the runtime can give pods, which are
	// extended resources.
	Devices map[string]int64
}

// Detect describes the machine whose root is fsys as a node, the way the kubelet does
// (pkg/kubelet/nodestatus/setters.go): its capacity, how much of it is allocatable, and
// whether it is short of memory or disk.
func Detect(fsys fs.FS, o DetectOptions) (*v1.Node, error) {
	facts, err := nodeinfo.Read(fsys, goruntime.NumCPU())
	if err != nil {
		return nil, fmt.Errorf("describing node %q: %w", o.Name, err)
	}
	capacity := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(facts.MilliCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(facts.Memory, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	if o.NodeFS.Capacity > 0 {
		capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(o.NodeFS.Capacity, resource.BinarySI)
	}
	for size, pages := range facts.HugePages {
		name := v1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String()
		capacity[v1.ResourceName(name)] = *resource.NewQuantity(size*pages, resource.BinarySI)
	}
	for kind, n := range o.Devices {
		capacity[v1.ResourceName(kind)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	maps.Copy(capacity, o.Capacity)

	node := &v1.Node{}
	node.Name = o.Name
	node.Labels = nodeLabels(o.Name, o.Labels)
	node.Status.Capacity = capacity
	node.Status.Allocatable = allocatable(capacity, o.reserved())
	node.Status.Conditions = conditions(facts, o)
	node.Status.NodeInfo = v1.NodeSystemInfo{
		KernelVersion: facts.Kernel, OperatingSystem: goruntime.GOOS, Architecture: goruntime.GOARCH,
		OSImage: facts.OS, MachineID: facts.MachineID, BootID: facts.BootID,
	}
	node.Status.Features = runtimeFeatures()
	return node, nil
}

// runtimeFeatures are those of the container runtime, which can hold a pod to
// supplementalGroupsPolicy: Strict.
func runtimeFeatures() *v1.NodeFeatures {
	return &v1.NodeFeatures{SupplementalGroupsPolicy: new(true)}
}

// nodeLabels returns the labels that the kubelet gives its node, and the given ones, of which
// the last win.
func nodeLabels(name string, more ...map[string]string) map[string]string {
	labels := map[string]string{
		v1.LabelHostname:   name,
		v1.LabelOSStable:   goruntime.GOOS,
		v1.LabelArchStable: goruntime.GOARCH,
	}
	for _, m := range more {
		maps.Copy(labels, m)
	}
	return labels
}

// allocatable returns what pods may have: the capacity less what is reserved and what the
// kubelet keeps free by evicting. Huge pages are part of the memory.
func allocatable(capacity, reserved v1.ResourceList) v1.ResourceList {
	list := v1.ResourceList{}
	for name, total := range capacity {
		left := subtract(total, reserved[name])
		switch name {
		case v1.ResourceMemory:
			left = subtract(left, *resource.NewQuantity(evictMemoryAvailable, resource.BinarySI))
		case v1.ResourceEphemeralStorage:
			left = subtract(left, *resource.NewQuantity(share(amount(name, total), evictNodeFSAvailable), resource.BinarySI))
		default:
		}
		list[name] = left
	}
	if memory, ok := list[v1.ResourceMemory]; ok {
		for name, total := range capacity {
			if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
				memory = subtract(memory, total)
			}
		}
		list[v1.ResourceMemory] = memory
	}
	return list
}

// share returns a part of the whole as the kubelet computes it.
func share(whole int64, part float32) int64 { return int64(float64(whole) * float64(part)) }

// conditions says whether the node is short of memory or disk, by the kubelet's
// thresholds.
func conditions(facts nodeinfo.Facts, o DetectOptions) []v1.NodeCondition {
	memory := v1.NodeCondition{
		Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse,
		Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available",
	}
	if facts.Available < evictMemoryAvailable {
		memory.Status, memory.Reason, memory.Message = v1.ConditionTrue, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"
	}
	disk := v1.NodeCondition{
		Type: v1.NodeDiskPressure, Status: v1.ConditionFalse,
		Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure",
	}
	if full(o.NodeFS, evictNodeFSAvailable, evictNodeFSInodesFree) || full(o.ImageFS, evictImageFSAvailable, evictImageFSInodesFree) {
		disk.Status, disk.Reason, disk.Message = v1.ConditionTrue, "KubeletHasDiskPressure", "kubelet has disk pressure"
	}
	return []v1.NodeCondition{memory, disk}
}

// full says whether less is free than the given parts of a filesystem.
func full(f nodeinfo.Filesystem, available, inodes float32) bool {
	return f.Available < share(f.Capacity, available) || f.InodesFree < share(f.Inodes, inodes)
}
