package manifests

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Fault is an error of a pod or a Service that was found after the input was read.
type Fault struct {
	Object  metav1.Object // of the Set
	Field   string        // its path in the object
	Message string
	Hint    string
}

// Refuse moves the documents of the objects with faults from the pods of the set to the invalid
// ones, and returns the faults as an error of type Diagnostics. Several pods of one template have
// a fault once. The set must have been read with Options.Places.
func (s *Set) Refuse(faults []Fault) error {
	var all Diagnostics
	refused := map[*entry]Diagnostics{}
	for _, f := range faults {
		at := s.places[f.Object]
		problem := at.entry.doc.Error(at.prefix+f.Field, f.Message, f.Hint)
		if !slices.Contains(refused[at.entry], problem) {
			refused[at.entry] = append(refused[at.entry], problem)
			all = append(all, problem)
		}
	}
	for _, e := range slices.SortedFunc(maps.Keys(refused), func(a, b *entry) int { return cmp.Compare(a.index, b.index) }) {
		s.Invalid = append(s.Invalid, e.invalidDocument(refused[e]))
	}
	s.Pods = slices.DeleteFunc(s.Pods, func(pod *v1.Pod) bool { return len(refused[s.places[pod].entry]) > 0 })
	return all.Sort().Err()
}

// place is where a pod is in the input.
type place struct {
	entry  *entry
	prefix string // of its fields in the document
}

// keepPlaces keeps where the pods and Services are in the input.
func (r *reader) keepPlaces() {
	r.set.places = map[metav1.Object]place{}
	for i, e := range r.entries {
		e.index = i
		for _, pe := range e.pods {
			r.set.places[pe.pod] = place{e, pe.prefix}
		}
		if svc, ok := r.serviceOf(e); ok {
			r.set.places[svc] = place{entry: e}
		}
	}
}

// SetImages changes the references of a pod's images to what change returns, and its UID with
// them.
func (s *Set) SetImages(pod *v1.Pod, change func(ref string) string) error {
	changed := false
	for _, i := range podspec.Images(pod) {
		ref := change(*i.Ref)
		changed = changed || ref != *i.Ref
		*i.Ref = ref
	}
	if !changed {
		return nil
	}
	uid, err := s.uid(pod, references(pod))
	if err != nil {
		return err
	}
	pod.UID = uid
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotationHash, string(uid))
	return nil
}

// checkDigests refuses images that are not given by their digest.
func (r *reader) checkDigests(e *entry, pe podEntry) {
	if !r.options.RequireDigest {
		return
	}
	for _, i := range podspec.Images(pe.pod) {
		if !strings.Contains(*i.Ref, "@") {
			e.fail(pe.prefix+i.Field, fmt.Sprintf("image %q is not given by its digest", *i.Ref), "write NAME@sha256:..., or use --lock")
		}
	}
}
