// Package manifests reads Kubernetes manifests: it splits and decodes files strictly,
// sets defaults, validates, resolves priorities and references, and names every problem of
// every file at once.
package manifests

import (
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// Diagnostic is one thing wrong with one document of one file.
type Diagnostic = decode.Diagnostic

// Diagnostics are all that was found, sorted by file and line. They are an error, one
// problem to a line: "file:line: field: message (hint)".
type Diagnostics = decode.Diagnostics

// The severities of a Diagnostic.
const (
	SeverityError   = decode.SeverityError
	SeverityWarning = decode.SeverityWarning
)

// The kubelet's annotations that every pod gets. None of them counts for its UID.
const (
	// annotationHash holds the pod's UID (pkg/kubelet/types.ConfigHashAnnotationKey).
	annotationHash = "kubernetes.io/config.hash"
	// annotationConfigSource holds "file" or "http"
	// (pkg/kubelet/types.ConfigSourceAnnotationKey).
	annotationConfigSource = "kubernetes.io/config.source"
)

// Set is what the input holds. The objects belong to the caller, but those that pods
// refer to must not be changed while pods run.
type Set struct {
	// Pods are sound, with defaults, priority and UID, in the order of files and
	// documents.
	Pods []*v1.Pod
	// Node is the input's Node document, or nil.
	Node *v1.Node
	// Warnings are the problems that do not stop the run, sorted.
	Warnings Diagnostics
	// Invalid are the documents that cannot be used, in input order.
	Invalid []Invalid

	configMaps map[key]*v1.ConfigMap
	secrets    map[key]*v1.Secret
	claims     map[key]*v1.PersistentVolumeClaim
	volumes    map[string]*v1.PersistentVolume

	priorityClasses map[string]*schedulingv1.PriorityClass
	runtimeClasses  map[string]*nodev1.RuntimeClass
}

// Invalid is a document with errors.
type Invalid struct {
	File      string
	Line      int
	Kind      string
	Namespace string
	Name      string
	Problems  Diagnostics
}

type key struct{ namespace, name string }

// ConfigMap returns a ConfigMap of the input.
func (s *Set) ConfigMap(namespace, name string) (*v1.ConfigMap, bool) {
	o, ok := s.configMaps[key{namespace, name}]
	return o, ok
}

// Secret returns a Secret of the input, its stringData merged into its data.
func (s *Set) Secret(namespace, name string) (*v1.Secret, bool) {
	o, ok := s.secrets[key{namespace, name}]
	return o, ok
}

// RuntimeClass returns a RuntimeClass of the input.
func (s *Set) RuntimeClass(name string) (*nodev1.RuntimeClass, bool) {
	o, ok := s.runtimeClasses[name]
	return o, ok
}

func newSet() *Set {
	return &Set{
		configMaps: map[key]*v1.ConfigMap{},
		secrets:    map[key]*v1.Secret{},
		claims:     map[key]*v1.PersistentVolumeClaim{},
		volumes:    map[string]*v1.PersistentVolume{},

		priorityClasses: map[string]*schedulingv1.PriorityClass{},
		runtimeClasses:  map[string]*nodev1.RuntimeClass{},
	}
}
