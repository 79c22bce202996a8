package validation

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/manifests/decode"
)

// withoutFollowing drops the errors that may only follow from the fields that were not decoded.
// When in doubt it drops an error, which is reported once these fields are right.
func withoutFollowing(doc decode.Document, errs field.ErrorList, prefix string) field.ErrorList {
	if len(doc.Wrong()) == 0 {
		return errs
	}
	return slices.DeleteFunc(slices.Clone(errs), func(err *field.Error) bool {
		switch err.Type {
		case field.ErrorTypeNotFound, field.ErrorTypeForbidden, field.ErrorTypeInternal:
			return true // these depend on other fields
		default:
		}
		return doc.IsWrong(pathOf(err, prefix)) || slices.ContainsFunc(doc.Wrong(), func(w decode.Wrong) bool {
			return follows(doc, err, pathOf(err, prefix), w)
		})
	})
}

// follows says whether an error may follow from a wrong field.
func follows(doc decode.Document, err *field.Error, path string, wrong decode.Wrong) bool {
	parent, name := cutLast(wrong.Path)
	above, last := cutLast(path)
	switch {
	case wrong.Unknown && !doc.Has(path) && (decode.Within(wrong.Path, present(doc, above)) || last == name):
		return true // the missing field may be the one that was misspelled or misplaced
	case above == parent && dependent(doc, parent):
		return true
	}
	// Names of several words, such as completionMode, are not used as ordinary ones.
	return strings.ToLower(name) != name && strings.Contains(err.Detail, name)
}

// dependent says whether the rules for a field of an object may depend on another field of the
// same object. In objects with many fields they rarely do.
func dependent(doc decode.Document, path string) bool {
	if kind := doc.ObjectKind(); kind == "Job" && path == "spec" || kind == "CronJob" && path == "spec.jobTemplate.spec" {
		return true
	}
	above, last := cutLast(path)
	if strings.HasPrefix(last, "[") {
		_, last = cutLast(above)
		return last != "containers" && last != "initContainers"
	}
	return last != "" && last != "spec" && last != "metadata"
}

// present returns the innermost object at or above a path that the document has.
func present(doc decode.Document, path string) string {
	for path != "" && !doc.Has(path) {
		path, _ = cutLast(path)
	}
	return path
}

// cutLast splits "a.b[0].c" into "a.b[0]" and "c", and "a.b[0]" into "a.b" and "[0]".
func cutLast(path string) (above, last string) {
	if strings.HasSuffix(path, "]") {
		i := max(strings.LastIndexByte(path, '['), 0)
		return path[:i], path[i:]
	}
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}
