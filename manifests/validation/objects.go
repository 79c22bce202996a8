// Package validation sets defaults and validates objects with Kubernetes' own code, and finds
// errors that otherwise only a node would find. It is the only package that imports
// k8s.io/kubernetes.
package validation

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	nodeapi "k8s.io/kubernetes/pkg/apis/node/v1"
	nodevalidation "k8s.io/kubernetes/pkg/apis/node/validation"
	schedulingapi "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/util/tolerations"
	"k8s.io/pod-security-admission/api"
)

// Rules sets defaults and validates. Its methods change their argument and return the errors of
// an API server. All but Namespace are safe for concurrent use. New returns one.
type Rules struct {
	security  podSecurity
	namespace string
}

// New returns the rules of an API server that allows privileged containers. Each pod has to meet
// a level of the Pod Security Standards, with or without a version, for example
// "baseline:v1.30"; "" is privileged. Objects without a namespace get the given one. It sets the
// process-wide capabilities of Kubernetes' libraries.
func New(level, namespace string) (*Rules, error) {
	minimum, err := parseLevel(level)
	if err != nil {
		return nil, err
	}
	capabilities.Setup(true, 0)
	return &Rules{namespace: namespace, security: podSecurity{
		minimum: minimum, namespaces: map[string]api.Policy{},
	}}, nil
}

// Object sets the defaults of an object of any kind except Pod and Namespace, and validates it
// as new. A Job must have its UID, which its labels contain.
func (r *Rules) Object(object metav1.Object) field.ErrorList {
	switch o := object.(type) {
	case *v1.ConfigMap:
		r.SetNamespace(o)
		return validate(o, corev1.SetObjectDefaults_ConfigMap, corev1.Convert_v1_ConfigMap_To_core_ConfigMap, corevalidation.ValidateConfigMap)
	case *v1.Secret:
		r.SetNamespace(o)
		mergeStringData(o)
		return validate(o, corev1.SetObjectDefaults_Secret, corev1.Convert_v1_Secret_To_core_Secret, corevalidation.ValidateSecret)
	case *v1.Service:
		r.SetNamespace(o)
		return service(o)
	case *v1.PersistentVolumeClaim:
		r.SetNamespace(o)
		return validate(o, corev1.SetObjectDefaults_PersistentVolumeClaim, corev1.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim,
			func(in *core.PersistentVolumeClaim) field.ErrorList {
				return corevalidation.ValidatePersistentVolumeClaim(in, corevalidation.ValidationOptionsForPersistentVolumeClaim(in, nil))
			})
	case *v1.PersistentVolume:
		o.Namespace = ""
		return validate(o, corev1.SetObjectDefaults_PersistentVolume, corev1.Convert_v1_PersistentVolume_To_core_PersistentVolume,
			func(in *core.PersistentVolume) field.ErrorList {
				return corevalidation.ValidatePersistentVolume(in, corevalidation.ValidationOptionsForPersistentVolume(in, nil))
			})
	case *v1.Node:
		o.Namespace = ""
		return validate(o, corev1.SetObjectDefaults_Node, corev1.Convert_v1_Node_To_core_Node, corevalidation.ValidateNode)
	case *schedulingv1.PriorityClass:
		o.Namespace = ""
		return validate(o, schedulingapi.SetObjectDefaults_PriorityClass, schedulingapi.Convert_v1_PriorityClass_To_scheduling_PriorityClass,
			schedulingvalidation.ValidatePriorityClass)
	case *nodev1.RuntimeClass:
		o.Namespace = ""
		return validate(o, func(*nodev1.RuntimeClass) {}, nodeapi.Convert_v1_RuntimeClass_To_node_RuntimeClass, nodevalidation.ValidateRuntimeClass)
	default:
		r.SetNamespace(object)
		return workload(object)
	}
}

// validate sets the defaults of an object and validates it in Kubernetes' internal version.
func validate[T, Internal any](o *T, setDefaults func(*T), convert func(*T, *Internal, conversion.Scope) error, rules func(*Internal) field.ErrorList) field.ErrorList {
	setDefaults(o)
	var in Internal
	if err := convert(o, &in, nil); err != nil {
		return internal(err)
	}
	return rules(&in)
}

// mergeStringData does what pkg/registry/core/secret/strategy.go does.
func mergeStringData(o *v1.Secret) {
	for k, v := range o.StringData {
		if o.Data == nil {
			o.Data = map[string][]byte{}
		}
		o.Data[k] = []byte(v)
	}
	o.StringData = nil
}

// MergeTolerations returns both lists without tolerations that another one covers.
func MergeTolerations(first, second []v1.Toleration) ([]v1.Toleration, error) {
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

// SetNamespace gives the default namespace to an object without one.
func (r *Rules) SetNamespace(o metav1.Object) { o.SetNamespace(cmp.Or(o.GetNamespace(), r.namespace)) }

func internal(err error) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, err)}
}
