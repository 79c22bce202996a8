package validation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
)

// Ephemeral returns the container with its defaults, as one that is added to the pod, or the API server's error
// (podEphemeralContainersStrategy of pkg/registry/core/pod).
func (*Rules) Ephemeral(pod *v1.Pod, c v1.EphemeralContainer) (v1.EphemeralContainer, error) {
	old := pod.DeepCopy()
	old.Status, old.ResourceVersion = v1.PodStatus{}, "1" // which every stored object has
	corev1.SetObjectDefaults_Pod(old)
	with := old.DeepCopy()
	with.Spec.EphemeralContainers = append(with.Spec.EphemeralContainers, c)
	corev1.SetObjectDefaults_Pod(with)
	var oldIn, in core.Pod
	for from, to := range map[*v1.Pod]*core.Pod{old: &oldIn, with: &in} {
		if err := corev1.Convert_v1_Pod_To_core_Pod(from, to, nil); err != nil {
			return c, err
		}
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&in.Spec, &oldIn.Spec, &in.ObjectMeta, &oldIn.ObjectMeta)
	opts.ResourceIsPod = true
	// The rest of the pod, and its other ephemeral containers, are as they were accepted.
	errs := slices.DeleteFunc(corevalidation.ValidatePodEphemeralContainersUpdate(&in, &oldIn, opts), func(err *field.Error) bool {
		return !strings.HasPrefix(err.Field, "spec.ephemeralContainers[")
	})
	if len(errs) > 0 {
		return c, apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), pod.Name, errs)
	}
	return with.Spec.EphemeralContainers[len(with.Spec.EphemeralContainers)-1], nil
}
