package manifests

import (
	"sync"

	"github.com/runonce/runonce/manifests/gce"
)

// The formats of documents.
const (
	FormatKubernetes = "kubernetes"
	FormatGCE        = gce.Attribute
)

// formats read a document of another format than FormatKubernetes.
var formats = sync.OnceValue(func() map[string]func(*reader, *entry) step {
	return map[string]func(*reader, *entry) step{FormatGCE: (*reader).declaration}
})

// declaration reads a document as a container declaration of Compute Engine, which becomes a pod.
func (r *reader) declaration(e *entry) step {
	if e.doc.Index > 1 || e.doc.Prefix != "" {
		e.fail("", "a declaration is one document", "put each into a file of its own")
		return nil
	}
	pod, problems := gce.Pod(e.doc)
	if e.problems = append(e.problems, problems...); pod == nil {
		return nil
	}
	e.kind = pod.Kind
	return r.podOf(e, pod)
}
