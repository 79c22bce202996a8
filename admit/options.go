package admit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// Order is the sequence in which pods ask to be admitted.
type Order string

// The orders. ByPriority admits the highest priority first, and pods of equal priority in
// input order; ByManifest is the kubelet's way: input order, later critical pods preempting.
const (
	ByPriority Order = "priority"
	ByManifest Order = "manifest"
)

// Options say how pods are admitted. The zero value is the default on a machine without
// AppArmor.
type Options struct {
	Order Order // ByPriority when empty
	// AllowUnsafeSysctls are sysctls, or prefixes that end in *, allowed besides the safe ones.
	AllowUnsafeSysctls []string
	// Listening are the sockets on this machine that listen on host ports. One of a running pod
	// counts as long as the pod stays.
	Listening []Listener
	// AppArmor says that the machine enforces AppArmor profiles.
	AppArmor bool
	// Reserved are pods that other runs start here or have started. The resources of one that
	// does not run yet count as used, and it is neither preempted nor pruned.
	Reserved []*v1.Pod
	// Others are those of the node's options, for messages.
	Others []Other
	// Claims say what the pods' PersistentVolumeClaims ask of the node.
	Claims map[types.NamespacedName]Claim
	// RuntimeHandlers are the handlers that RuntimeClasses may name; nil for those that the
	// node lists, or any where it lists none.
	RuntimeHandlers []string
	// NoNFS says that mount.nfs is not installed.
	NoNFS bool
	// MissingFeatures says what the machine lacks, by the UID of the pod that needs it.
	MissingFeatures map[types.UID]string
	// Refused has why the cluster on which the pods run refuses some of them, by UID. If it is not
	// nil, nothing else is decided about pods that do not run yet.
	Refused map[types.UID]Reason
	// Prune says which pods of earlier runs are stopped unless the input has one of the same
	// name; nil for none.
	Prune func(*v1.Pod) bool
	// Rerun treats pods that have succeeded in an earlier run as new, like those that have
	// failed.
	Rerun bool
	// Recreate says which pods of earlier runs are replaced although they have neither changed nor ended; nil for none.
	Recreate func(*v1.Pod) bool
	// Once says which pods are never run again once they have ended, also if they have failed; nil for none.
	Once func(*v1.Pod) bool
	// DependsOn has what pods of the input depend on, by the names of the pods.
	DependsOn map[types.NamespacedName][]podspec.Dependency
	// Queue has pods wait for others that the input has, instead of being rejected.
	Queue bool
}

// SystemCritical is the lowest priority of a critical pod, which may preempt
// (scheduling.SystemCriticalPriority).
const SystemCritical int32 = 2_000_000_000

// Priority returns the pod's priority, 0 when it has none.
func Priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// Critical says whether the pod may preempt others. It goes by the priority alone; for the
// kubelet, every pod that comes from a file is critical.
func Critical(pod *v1.Pod) bool { return Priority(pod) >= SystemCritical }
