package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/manifests/validation"
)

// maxPods bounds the pods of one workload: a node does not run more, and a typo must not cost
// gigabytes.
const maxPods = 1000

// daemonSetPods returns the pod of a DaemonSet on this node, with the tolerations that its
// controller adds (pkg/controller/daemon/util/daemonset_util.go).
func daemonSetPods(o *appsv1.DaemonSet) ([]*v1.Pod, error) {
	pods, err := podsOf(o, &o.Spec.Template, 1)
	if err != nil {
		return nil, err
	}
	spec := &pods[0].Spec
	tolerate := func(effect v1.TaintEffect, keys ...string) {
		for _, key := range keys {
			t := v1.Toleration{Key: key, Operator: v1.TolerationOpExists, Effect: effect}
			if !slices.ContainsFunc(spec.Tolerations, func(have v1.Toleration) bool { return have.MatchToleration(&t) }) {
				spec.Tolerations = append(spec.Tolerations, t)
			}
		}
	}
	tolerate(v1.TaintEffectNoExecute, v1.TaintNodeNotReady, v1.TaintNodeUnreachable)
	tolerate(v1.TaintEffectNoSchedule, v1.TaintNodeDiskPressure, v1.TaintNodeMemoryPressure, v1.TaintNodePIDPressure, v1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		tolerate(v1.TaintEffectNoSchedule, v1.TaintNodeNetworkUnavailable)
	}
	return pods, nil
}

// statefulSetPods returns the pods of a StatefulSet with its defaults, with the labels, names in
// the network and volumes of their ordinals (pkg/controller/statefulset/stateful_set_utils.go), and the claims
// of its templates.
func statefulSetPods(o *appsv1.StatefulSet) ([]*v1.Pod, []*v1.PersistentVolumeClaim, error) {
	pods, err := podsOf(o, &o.Spec.Template, *o.Spec.Replicas)
	if err != nil {
		return nil, nil, err
	}
	start := int32(0)
	if o.Spec.Ordinals != nil {
		start = o.Spec.Ordinals.Start
	}
	var claims []*v1.PersistentVolumeClaim
	for i, p := range pods {
		ordinal := int(start) + i
		p.Name = fmt.Sprintf("%s-%d", o.Name, ordinal)
		p.Spec.Hostname, p.Spec.Subdomain = p.Name, o.Spec.ServiceName
		metav1.SetMetaDataLabel(&p.ObjectMeta, appsv1.StatefulSetPodNameLabel, p.Name)
		metav1.SetMetaDataLabel(&p.ObjectMeta, appsv1.PodIndexLabel, strconv.Itoa(ordinal))
		for _, t := range o.Spec.VolumeClaimTemplates {
			claim := t.DeepCopy()
			claim.Namespace = o.Namespace
			claim.Name = fmt.Sprintf("%s-%s", t.Name, p.Name)
			addClaimVolume(p, t.Name, claim.Name)
			claims = append(claims, claim)
		}
	}
	return pods, claims, nil
}

// addClaimVolume adds a volume of the claim, or replaces the one of the same name.
func addClaimVolume(p *v1.Pod, name, claim string) {
	volume := v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
	if i := slices.IndexFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name }); i >= 0 {
		p.Spec.Volumes[i] = volume
		return
	}
	p.Spec.Volumes = append(p.Spec.Volumes, volume)
}

// podsOf returns n pods of a workload's template. They are named after the workload and
// numbered, so that a second run finds them again.
func podsOf(o metav1.Object, template *v1.PodTemplateSpec, n int32) ([]*v1.Pod, error) {
	if n > maxPods {
		return nil, fmt.Errorf("%d pods are more than the %d that a workload may have here", n, maxPods)
	}
	pods := make([]*v1.Pod, 0, n)
	for i := range n {
		pods = append(pods, &v1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.GetNamespace(), Name: podName(o, i),
				Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
				Finalizers: slices.Clone(template.Finalizers),
			},
			Spec: *template.Spec.DeepCopy(),
		})
	}
	return pods, nil
}

// podName returns the name of a pod of a workload. If a node could not run a pod of that name, the
// workload's is cut as an API server does it, whose names of pods are short
// (k8s.io/apiserver/pkg/storage/names), and gets a hash to be still different from others.
func podName(o metav1.Object, number int32) string {
	name := fmt.Sprintf("%s-%d", o.GetName(), number)
	if validation.NamesFit(o.GetNamespace(), name) {
		return name
	}
	sum := sha256.Sum256([]byte(o.GetName()))
	end := fmt.Sprintf("-%s-%d", hex.EncodeToString(sum[:])[:hashLength], number)
	return strings.TrimRight(o.GetName()[:maxGenerated-len(end)], "-.") + end
}
