package admit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit/predicates"
)

// Order is the sequence in which pods ask to be admitted.
type Order string

// The orders. ByPriority asks for the highest priority first and in input order within
// one; ByManifest is the kubelet's way: input order, later critical pods preempting.
const (
	ByPriority Order = "priority"
	ByManifest Order = "manifest"
)

// Options say how pods are admitted. The zero value is what a run does by default on a
// machine without AppArmor.
type Options struct {
	Order Order // ByPriority when empty
	// AllowUnsafeSysctls are sysctls, or prefixes that end in *, allowed beside the safe ones.
	AllowUnsafeSysctls []string
	// Listening holds the sockets that listen on this machine already.
	Listening []HostPort
	// AppArmor says that the machine enforces AppArmor profiles.
	AppArmor bool
	// Booked are pods that other runs are about to start here, or run. One that is not
	// among the running pods has its room all the same, and can neither be preempted nor
	// replaced, since there is nothing yet to stop.
	Booked []*v1.Pod
	// Claims says what of the pods' PersistentVolumeClaims counts for their admission.
	Claims map[types.NamespacedName]Claim
	// RuntimeHandlers are the names of the container runtimes that RuntimeClasses may ask
	// for; nil for those that the node lists, or any where it lists none.
	RuntimeHandlers []string
	// NoNFS says that the machine has no program to mount NFS with.
	NoNFS bool
	// Unable says what the machine lacks, by the UID of the pod that needs it.
	Unable map[types.UID]string
	// Prune stops pods of earlier runs that the input does not hold.
	Prune bool
	// Rerun takes pods of earlier runs that have ended for new.
	Rerun bool
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

// Critical says whether the pod may preempt others. Unlike the kubelet's rule, by which
// every pod of a file is critical, it goes by the number alone.
func Critical(pod *v1.Pod) bool { return Priority(pod) >= SystemCritical }

// ValidateSysctls returns the first fault of a list of sysctls to allow: each has to be
// known to belong to a namespace of the pod, as the kubelet asks of its own flag.
func ValidateSysctls(unsafe []string) error {
	for _, s := range unsafe {
		if !predicates.Namespaced(s) {
			return fmt.Errorf("sysctl %q: not known to be namespaced", s)
		}
	}
	return nil
}
