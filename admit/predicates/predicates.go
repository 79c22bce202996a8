// Package predicates says why a pod cannot run on a node whichever other pods go, in the
// kubelet's words.
package predicates

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/runonce/runonce/internal/podspec"
)

// Reason is one of a rejection.
type Reason struct {
	Reason  string
	Message string
}

// Subject is a pod with what is known of it.
type Subject struct {
	*v1.Pod
	QOS      v1.PodQOSClass
	Critical bool
}

// Options say what a node allows.
type Options struct {
	UnsafeSysctls []string // allowed beside the safe ones; prefixes end in *
	AppArmor      bool     // is enforced
	// RuntimeHandlers are those that there are; nil for those that the node lists, or any.
	RuntimeHandlers []string
	Unable          string // what the machine lacks for the pod, empty for nothing
}

// Early returns the reasons that the kubelet looks for before resources: pressure
// (pkg/kubelet/eviction), sysctls (pkg/kubelet/sysctl), and what the node's platform
// lacks (pkg/kubelet/lifecycle/predicate.go).
func Early(s Subject, node *v1.Node, o Options) []Reason {
	var reasons []Reason
	reasons = appendReason(reasons, pressure(s, node))
	reasons = appendReason(reasons, forbiddenSysctl(s.Pod, node.Status.NodeInfo.KernelVersion, o.UnsafeSysctls))
	reasons = append(reasons, platform(s.Pod, node)...)
	return appendReason(reasons, noRuntime(s.Pod, node, o.RuntimeHandlers))
}

// Place returns the reasons that the kubelet looks for after resources and before host
// ports: the node that the pod asks for is another one.
func Place(s Subject, node *v1.Node) []Reason {
	var reasons []Reason
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(s.Pod).Match(node); !ok || err != nil {
		reasons = append(reasons, Reason{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"})
	}
	if s.Spec.NodeName != "" && s.Spec.NodeName != node.Name {
		reasons = append(reasons, Reason{"NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"})
	}
	return reasons
}

// Late returns the reasons that the kubelet looks for after host ports: taints, of which
// those that only keep the scheduler away count here too, AppArmor, and other features that
// the node lacks (pkg/kubelet/lifecycle/handlers.go).
func Late(s Subject, node *v1.Node, o Options) []Reason {
	var reasons []Reason
	for _, t := range node.Spec.Taints {
		if (t.Effect == v1.TaintEffectNoExecute || t.Effect == v1.TaintEffectNoSchedule) && !tolerates(s.Spec.Tolerations, t) {
			reasons = append(reasons, Reason{"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"})
			break
		}
	}
	if !o.AppArmor && wantsAppArmor(s.Pod) {
		reasons = append(reasons, Reason{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"})
	}
	if o.Unable != "" {
		reasons = append(reasons, Reason{"PodFeatureUnsupported", "Pod requires node features that are not available: " + o.Unable})
	}
	return reasons
}

func appendReason(reasons []Reason, r *Reason) []Reason {
	if r == nil {
		return reasons
	}
	return append(reasons, *r)
}

// pressure refuses pods while the node is short of something: all that are not
// critical, or for memory alone the BestEffort ones that do not tolerate it.
func pressure(s Subject, node *v1.Node) *Reason {
	var pressures []string
	for _, c := range node.Status.Conditions {
		switch c.Type {
		case v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
			if c.Status == v1.ConditionTrue {
				pressures = append(pressures, string(c.Type))
			}
		default:
		}
	}
	if len(pressures) == 0 || s.Critical {
		return nil
	}
	slices.Sort(pressures)
	pressures = slices.Compact(pressures)
	if len(pressures) == 1 && pressures[0] == string(v1.NodeMemoryPressure) {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if s.QOS != v1.PodQOSBestEffort || tolerates(s.Spec.Tolerations, taint) {
			return nil
		}
	}
	return &Reason{"Evicted", fmt.Sprintf("The node had condition: %v. ", pressures)}
}

// platform refuses pods of another operating system or of a feature that the
// node's runtime lacks.
func platform(pod *v1.Pod, node *v1.Node) []Reason {
	var reasons []Reason
	if os, ok := pod.Labels[v1.LabelOSStable]; ok && os != string(v1.Linux) {
		reasons = append(reasons, Reason{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"})
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name != v1.Linux {
		reasons = append(reasons, Reason{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"})
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict {
		f := node.Status.Features
		if f == nil || f.SupplementalGroupsPolicy == nil || !*f.SupplementalGroupsPolicy {
			reasons = append(reasons, Reason{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"})
		}
	}
	return reasons
}

// noRuntime refuses pods whose runtime is not there. The kubelet starts them all the same,
// and they wait for ever for a sandbox; the words are those of its event.
func noRuntime(pod *v1.Pod, node *v1.Node, there []string) *Reason {
	name, ok := pod.Annotations[podspec.AnnotationRuntimeHandler]
	if !ok {
		return nil
	}
	if there == nil {
		for _, h := range node.Status.RuntimeHandlers {
			there = append(there, h.Name)
		}
	}
	if len(there) == 0 || slices.Contains(there, name) {
		return nil
	}
	return &Reason{"FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: no runtime for %q is configured", name)}
}

// wantsAppArmor says whether the pod or one of its containers asks for a profile, by
// field or by the older annotation.
func wantsAppArmor(pod *v1.Pod) bool {
	asks := func(p *v1.AppArmorProfile) bool { return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined }
	if sc := pod.Spec.SecurityContext; sc != nil && asks(sc.AppArmorProfile) {
		return true
	}
	for _, c := range podspec.Containers(pod) {
		if sc := c.SecurityContext; sc != nil && asks(sc.AppArmorProfile) {
			return true
		}
	}
	for key, profile := range pod.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && profile != "" && profile != v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}
