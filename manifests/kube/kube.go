// Package kube gives objects the defaults of Kubernetes and holds them against its rules,
// with Kubernetes' own code. It is the only package that imports k8s.io/kubernetes.
package kube

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/node"
	nodeapi "k8s.io/kubernetes/pkg/apis/node/v1"
	nodevalidation "k8s.io/kubernetes/pkg/apis/node/validation"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingapi "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/util/tolerations"
)

// Rules sets defaults and validates. Its methods change their argument, and return what
// an API server would have said of it. Make one with New.
type Rules struct{}

// New returns the rules of an API server that allows privileged containers. It sets the
// process-wide capabilities of Kubernetes' libraries.
func New() Rules {
	capabilities.Setup(true, 0)
	return Rules{}
}

// Warning is what an API server says about a field that it accepts all the same.
type Warning struct{ Field, Message string }

// Pod sets the defaults of the pod and validates it as new
// (pkg/registry/core/pod/strategy.go).
func (Rules) Pod(p *v1.Pod) (field.ErrorList, []Warning) {
	corev1.SetObjectDefaults_Pod(p)
	p.Namespace = namespace(p.Namespace)
	var in core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(p, &in, nil); err != nil {
		return internal(err), nil
	}
	// An API server does this after admission, not among the other defaults.
	podutil.DefaultPodLevelResources(&in)
	if in.Spec.Resources != nil {
		if err := corev1.Convert_core_ResourceRequirements_To_v1_ResourceRequirements(in.Spec.Resources, p.Spec.Resources, nil); err != nil {
			return internal(err), nil
		}
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&in.Spec, nil, &in.ObjectMeta, nil)
	opts.ResourceIsPod = true
	errs := validation.ValidatePodCreate(&in, opts)
	if len(errs) > 0 {
		return errs, nil
	}
	var warnings []Warning
	for _, w := range podutil.GetWarningsForPod(context.Background(), &in, nil) {
		f, message, ok := strings.Cut(w, ": ")
		if !ok {
			f, message = "", w
		}
		warnings = append(warnings, Warning{f, message})
	}
	return nil, warnings
}

// ConfigMap sets the defaults of the ConfigMap and validates it.
func (Rules) ConfigMap(o *v1.ConfigMap) field.ErrorList {
	corev1.SetObjectDefaults_ConfigMap(o)
	o.Namespace = namespace(o.Namespace)
	var in core.ConfigMap
	if err := corev1.Convert_v1_ConfigMap_To_core_ConfigMap(o, &in, nil); err != nil {
		return internal(err)
	}
	return validation.ValidateConfigMap(&in)
}

// Secret merges stringData into data as the API server does
// (pkg/registry/core/secret/strategy.go), sets the defaults and validates.
func (Rules) Secret(o *v1.Secret) field.ErrorList {
	for k, v := range o.StringData {
		if o.Data == nil {
			o.Data = map[string][]byte{}
		}
		o.Data[k] = []byte(v)
	}
	o.StringData = nil
	corev1.SetObjectDefaults_Secret(o)
	o.Namespace = namespace(o.Namespace)
	var in core.Secret
	if err := corev1.Convert_v1_Secret_To_core_Secret(o, &in, nil); err != nil {
		return internal(err)
	}
	return validation.ValidateSecret(&in)
}

// Node sets the defaults of the node, its allocatable from its capacity among them, and
// validates it.
func (Rules) Node(o *v1.Node) field.ErrorList {
	corev1.SetObjectDefaults_Node(o)
	o.Namespace = ""
	var in core.Node
	if err := corev1.Convert_v1_Node_To_core_Node(o, &in, nil); err != nil {
		return internal(err)
	}
	return validation.ValidateNode(&in)
}

// PriorityClass sets the defaults of the class and validates it.
func (Rules) PriorityClass(o *schedulingv1.PriorityClass) field.ErrorList {
	schedulingapi.SetObjectDefaults_PriorityClass(o)
	o.Namespace = ""
	var in scheduling.PriorityClass
	if err := schedulingapi.Convert_v1_PriorityClass_To_scheduling_PriorityClass(o, &in, nil); err != nil {
		return internal(err)
	}
	return schedulingvalidation.ValidatePriorityClass(&in)
}

// PersistentVolumeClaim sets the defaults of the claim and validates it.
func (Rules) PersistentVolumeClaim(o *v1.PersistentVolumeClaim) field.ErrorList {
	corev1.SetObjectDefaults_PersistentVolumeClaim(o)
	o.Namespace = namespace(o.Namespace)
	var in core.PersistentVolumeClaim
	if err := corev1.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim(o, &in, nil); err != nil {
		return internal(err)
	}
	return validation.ValidatePersistentVolumeClaim(&in, validation.ValidationOptionsForPersistentVolumeClaim(&in, nil))
}

// PersistentVolume sets the defaults of the volume and validates it.
func (Rules) PersistentVolume(o *v1.PersistentVolume) field.ErrorList {
	corev1.SetObjectDefaults_PersistentVolume(o)
	o.Namespace = ""
	var in core.PersistentVolume
	if err := corev1.Convert_v1_PersistentVolume_To_core_PersistentVolume(o, &in, nil); err != nil {
		return internal(err)
	}
	return validation.ValidatePersistentVolume(&in, validation.ValidationOptionsForPersistentVolume(&in, nil))
}

// RuntimeClass validates the class, which has no defaults.
func (Rules) RuntimeClass(o *nodev1.RuntimeClass) field.ErrorList {
	o.Namespace = ""
	var in node.RuntimeClass
	if err := nodeapi.Convert_v1_RuntimeClass_To_node_RuntimeClass(o, &in, nil); err != nil {
		return internal(err)
	}
	return nodevalidation.ValidateRuntimeClass(&in)
}

// MergeTolerations returns both lists without what another toleration covers.
func (Rules) MergeTolerations(first, second []v1.Toleration) ([]v1.Toleration, error) {
	in := make([]core.Toleration, len(first)+len(second))
	for i, t := range slices.Concat(first, second) {
		if err := corev1.Convert_v1_Toleration_To_core_Toleration(&t, &in[i], nil); err != nil {
			return nil, err
		}
	}
	merged := tolerations.MergeTolerations(in[:len(first):len(first)], in[len(first):])
	out := make([]v1.Toleration, len(merged))
	for i := range merged {
		if err := corev1.Convert_core_Toleration_To_v1_Toleration(&merged[i], &out[i], nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func namespace(ns string) string {
	if ns == "" {
		return v1.NamespaceDefault
	}
	return ns
}

func internal(err error) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, err)}
}
