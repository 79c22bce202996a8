package admit

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/runonce/runonce/internal/podspec"
)

// early returns the reasons that the kubelet looks for before resources: pressure
// (pkg/kubelet/eviction), sysctls (pkg/kubelet/sysctl), and what the node's platform
// lacks (pkg/kubelet/lifecycle/predicate.go).
func (p *planner) early(e *entry) []Reason {
	return slices.Concat(
		p.pressure(e),
		forbiddenSysctls(e.pod, p.node.Status.NodeInfo.KernelVersion, p.o.AllowUnsafeSysctls),
		unsupportedPlatform(e.pod, p.node),
		p.missingRuntime(e.pod),
	)
}

// placement returns the reasons that the kubelet looks for after resources and before host
// ports: the pod asks for another node.
func (p *planner) placement(pod *v1.Pod) []Reason {
	var reasons []Reason
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(p.node); !ok || err != nil {
		reasons = append(reasons, Reason{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"})
	}
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != p.node.Name {
		reasons = append(reasons, Reason{"NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name"})
	}
	if p.volumeElsewhere(pod) {
		reasons = append(reasons, Reason{"VolumeBinding", "Predicate VolumeBinding failed: " + messageAffinity})
	}
	return reasons
}

// late returns the reasons that the kubelet looks for after host ports: taints, including
// those that only keep the scheduler away, AppArmor, and other features that the node lacks
// (pkg/kubelet/lifecycle/handlers.go).
func (p *planner) late(pod *v1.Pod) []Reason {
	var reasons []Reason
	for _, t := range p.node.Spec.Taints {
		if (t.Effect == v1.TaintEffectNoExecute || t.Effect == v1.TaintEffectNoSchedule) && !tolerates(pod.Spec.Tolerations, t) {
			reasons = append(reasons, Reason{"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"})
			break
		}
	}
	if !p.o.AppArmor && wantsAppArmor(pod) {
		reasons = append(reasons, Reason{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"})
	}
	if missing := p.o.MissingFeatures[pod.UID]; missing != "" {
		reasons = append(reasons, Reason{"PodFeatureUnsupported", "Pod requires node features that are not available: " + missing})
	}
	return append(reasons, p.o.missingMountHelper(pod)...)
}

// pressure rejects pods while the node is short of something: all that are not critical,
// or for memory alone the BestEffort ones that do not tolerate it.
func (p *planner) pressure(e *entry) []Reason {
	var pressures []string
	for _, c := range p.node.Status.Conditions {
		switch c.Type {
		case v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure:
			if c.Status == v1.ConditionTrue {
				pressures = append(pressures, string(c.Type))
			}
		default:
		}
	}
	if len(pressures) == 0 || Critical(e.pod) {
		return nil
	}
	slices.Sort(pressures)
	pressures = slices.Compact(pressures)
	if len(pressures) == 1 && pressures[0] == string(v1.NodeMemoryPressure) {
		taint := v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}
		if e.qos != v1.PodQOSBestEffort || tolerates(e.pod.Spec.Tolerations, taint) {
			return nil
		}
	}
	return []Reason{{"Evicted", fmt.Sprintf("The node had condition: %v. ", pressures)}}
}

// unsupportedPlatform rejects pods of another operating system or of a feature that the
// node's runtime lacks.
func unsupportedPlatform(pod *v1.Pod, node *v1.Node) []Reason {
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

// missingRuntime rejects pods whose runtime is not configured. The kubelet starts them all
// the same, and they wait for ever for a sandbox; the words are those of its event.
func (p *planner) missingRuntime(pod *v1.Pod) []Reason {
	name, ok := pod.Annotations[podspec.AnnotationRuntimeHandler]
	if !ok {
		return nil
	}
	configured := p.o.RuntimeHandlers
	if configured == nil {
		for _, h := range p.node.Status.RuntimeHandlers {
			configured = append(configured, h.Name)
		}
	}
	if len(configured) == 0 || slices.Contains(configured, name) {
		return nil
	}
	return []Reason{{"FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: no runtime for %q is configured", name)}}
}

// wantsAppArmor says whether the pod or one of its containers asks for a profile.
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
	return false
}

// tolerates says whether one of the tolerations tolerates the taint.
func tolerates(tolerations []v1.Toleration, taint v1.Taint) bool {
	return slices.ContainsFunc(tolerations, func(t v1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taint, true) })
}
