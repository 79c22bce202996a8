// Package manifests reads Kubernetes manifests: it decodes files strictly, sets defaults,
// validates, resolves priorities and references, and reports all problems of all files at
// once.
package manifests

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
)

// Diagnostic is one thing wrong with one document of one file.
type Diagnostic = decode.Diagnostic

// Diagnostics are all problems, sorted by file and line. They are an error, with one problem
// per line: "file:line: field: message (hint)".
type Diagnostics = decode.Diagnostics

// The severities of a Diagnostic.
const (
	SeverityError   = decode.SeverityError
	SeverityWarning = decode.SeverityWarning
)

// The kubelet's annotations, which every pod gets. They do not count for its UID.
const (
	// annotationHash holds the pod's UID (pkg/kubelet/types.ConfigHashAnnotationKey).
	annotationHash = "kubernetes.io/config.hash"
	// annotationConfigSource holds "file" or "http"
	// (pkg/kubelet/types.ConfigSourceAnnotationKey).
	annotationConfigSource = "kubernetes.io/config.source"
)

// Set is the content of the input. The objects belong to the caller, but those that pods refer
// to must not be changed while pods run.
type Set struct {
	// Pods are valid and have defaults, priority and UID, in the order of files and documents.
	Pods []*v1.Pod
	// Node is the input's Node document, or nil.
	Node *v1.Node
	// Warnings are the problems that do not prevent the run, sorted.
	Warnings Diagnostics
	// Invalid are the documents with errors, in input order.
	Invalid []Invalid

	objects map[object]metav1.Object // that pods refer to
	// workloads have made the pods that have no document of their own.
	workloads []podspec.Object
	places    map[metav1.Object]place // with Options.Places
	// dependencies are what pods depend on, by the names of the pods.
	dependencies map[types.NamespacedName][]podspec.Dependency
}

// Invalid is a document with errors.
type Invalid struct {
	File      string
	Path      string // as in podspec.AnnotationPath, of the file or directory
	Line      int
	Kind      string
	Namespace string
	Name      string
	Problems  Diagnostics
	// Optional says that the pods of the document are, as far as they are known.
	Optional bool
}

// object identifies an object of the input.
type object struct{ kind, namespace, name string }

// The kinds that pods refer to, and those that refer to pods.
const (
	kindConfigMap     = "ConfigMap"
	kindSecret        = "Secret"
	kindClaim         = "PersistentVolumeClaim"
	kindVolume        = "PersistentVolume"
	kindPriorityClass = "PriorityClass"
	kindRuntimeClass  = "RuntimeClass"
	kindNamespace     = "Namespace"
	kindService       = "Service"
)

func find[T metav1.Object](s *Set, kind, namespace, name string) (T, bool) {
	o, ok := s.objects[object{kind, namespace, name}].(T)
	return o, ok
}

// all returns the objects of a type in no particular order.
func all[T metav1.Object](s *Set) []T {
	var list []T
	for _, o := range s.objects {
		if o, ok := o.(T); ok {
			list = append(list, o)
		}
	}
	return list
}

// ConfigMap returns a ConfigMap of the input.
func (s *Set) ConfigMap(namespace, name string) (*v1.ConfigMap, bool) {
	return find[*v1.ConfigMap](s, kindConfigMap, namespace, name)
}

// Secret returns a Secret of the input, with its stringData merged into its data.
func (s *Set) Secret(namespace, name string) (*v1.Secret, bool) {
	return find[*v1.Secret](s, kindSecret, namespace, name)
}

// RuntimeClass returns a RuntimeClass of the input.
func (s *Set) RuntimeClass(name string) (*nodev1.RuntimeClass, bool) {
	return find[*nodev1.RuntimeClass](s, kindRuntimeClass, "", name)
}

// Claim returns a PersistentVolumeClaim of the input, including those of templates. One without
// a spec.volumeName gets a directory.
func (s *Set) Claim(namespace, name string) (*v1.PersistentVolumeClaim, bool) {
	return find[*v1.PersistentVolumeClaim](s, kindClaim, namespace, name)
}

// Claims returns all of the input's PersistentVolumeClaims, in no particular order.
func (s *Set) Claims() []*v1.PersistentVolumeClaim { return all[*v1.PersistentVolumeClaim](s) }

// PersistentVolume returns a PersistentVolume of the input.
func (s *Set) PersistentVolume(name string) (*v1.PersistentVolume, bool) {
	return find[*v1.PersistentVolume](s, kindVolume, "", name)
}

// Services returns the Services of the input, sorted by namespace and name. On a machine, they have the defaults
// of an API server and are valid: with the policy of their address families, but with families, cluster IPs and
// node ports only as far as they are written or follow from what is written. On a cluster, they are as they are
// written.
func (s *Set) Services() []*v1.Service {
	return slices.SortedFunc(slices.Values(all[*v1.Service](s)), func(a, b *v1.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Definitions returns the ConfigMaps, the Secrets and the workloads that have pods, with the defaults of an API server, in
// no particular order.
func (s *Set) Definitions() []podspec.Object {
	list := slices.Clone(s.workloads)
	for _, o := range s.objects {
		switch o := o.(type) {
		case *v1.ConfigMap:
			list = append(list, o)
		case *v1.Secret:
			list = append(list, o)
		}
	}
	return list
}

// Objects returns the objects of the input that pods refer to or that a cluster needs besides
// them, in the order in which they have to be created: by kind, then by namespace and name.
func (s *Set) Objects() []metav1.Object {
	order := []string{
		kindNamespace, kindPriorityClass, kindRuntimeClass, kindVolume, "ServiceAccount", kindSecret, kindConfigMap, kindClaim, kindService,
	}
	ids := slices.SortedFunc(maps.Keys(s.objects), func(a, b object) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.kind), slices.Index(order, b.kind)),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
		)
	})
	list := make([]metav1.Object, 0, len(ids))
	for _, id := range ids {
		if slices.Contains(order, id.kind) {
			list = append(list, s.objects[id])
		}
	}
	return list
}
