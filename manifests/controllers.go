package manifests

import (
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxPods bounds the pods of one workload: a node is not meant for more, and a slip of
// the keyboard must not cost gigabytes.
const maxPods = 1000

// daemonSetPods returns the one pod that a DaemonSet has on this node, with the tolerations
// that its controller adds (pkg/controller/daemon/util/daemonset_util.go).
func daemonSetPods(o *appsv1.DaemonSet) ([]*v1.Pod, error) {
	out, err := podsOf(o, &o.Spec.Template, 1)
	if err != nil {
		return nil, err
	}
	spec := &out[0].Spec
	for _, t := range daemonTolerations(spec.HostNetwork) {
		if !tolerates(spec.Tolerations, t) {
			spec.Tolerations = append(spec.Tolerations, t)
		}
	}
	return out, nil
}

func daemonTolerations(hostNetwork bool) []v1.Toleration {
	out := []v1.Toleration{
		{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
		{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute},
		{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
		{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
		{Key: v1.TaintNodePIDPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
		{Key: v1.TaintNodeUnschedulable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule},
	}
	if hostNetwork {
		out = append(out, v1.Toleration{Key: v1.TaintNodeNetworkUnavailable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule})
	}
	return out
}

func tolerates(list []v1.Toleration, t v1.Toleration) bool {
	for _, have := range list {
		if have.MatchToleration(&t) {
			return true
		}
	}
	return false
}

// statefulSetPods returns the pods of a StatefulSet that has its defaults, with the labels
// and claims of their ordinals (pkg/controller/statefulset/stateful_set_utils.go), and
// the claims of its templates.
func statefulSetPods(o *appsv1.StatefulSet) ([]*v1.Pod, []*v1.PersistentVolumeClaim, error) {
	out, err := podsOf(o, &o.Spec.Template, *o.Spec.Replicas)
	if err != nil {
		return nil, nil, err
	}
	start := int32(0)
	if o.Spec.Ordinals != nil {
		start = o.Spec.Ordinals.Start
	}
	var claims []*v1.PersistentVolumeClaim
	for i, p := range out {
		ordinal := int(start) + i
		p.Name = fmt.Sprintf("%s-%d", o.Name, ordinal)
		setLabel(p, appsv1.StatefulSetPodNameLabel, p.Name)
		setLabel(p, appsv1.PodIndexLabel, strconv.Itoa(ordinal))
		for _, t := range o.Spec.VolumeClaimTemplates {
			claim := t.DeepCopy()
			claim.Namespace = o.Namespace
			claim.Name = fmt.Sprintf("%s-%s", t.Name, p.Name)
			mountClaim(p, t.Name, claim.Name)
			claims = append(claims, claim)
		}
	}
	return out, claims, nil
}

// mountClaim makes the volume name that of the claim, in the place of one of the same name.
func mountClaim(p *v1.Pod, name, claim string) {
	volume := v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == name {
			p.Spec.Volumes[i] = volume
			return
		}
	}
	p.Spec.Volumes = append(p.Spec.Volumes, volume)
}

func setLabel(p *v1.Pod, key, value string) {
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[key] = value
}

// podsOf returns n pods of a workload's template, named after the workload and a number, so
// that a second run finds them again.
func podsOf(o metav1.Object, template *v1.PodTemplateSpec, n int32) ([]*v1.Pod, error) {
	if n > maxPods {
		return nil, fmt.Errorf("%d pods are more than the %d that a workload may have here", n, maxPods)
	}
	out := make([]*v1.Pod, 0, n)
	for i := range n {
		p := &v1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.GetNamespace(), Name: fmt.Sprintf("%s-%d", o.GetName(), i),
				Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
			},
			Spec: *template.Spec.DeepCopy(),
		}
		out = append(out, p)
	}
	return out, nil
}
