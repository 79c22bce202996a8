// Package fieldsupport is the table of the fields that a pod can have: what runonce does with
// each, or why it does not. Nothing that a manifest says is ignored in silence.
package fieldsupport

import "slices"

// class says what is done with a field.
type class string

const (
	// supported fields do what they do in Kubernetes.
	supported class = "supported"
	// refused fields stop the run before anything is started.
	refused class = "refused"
	// meaningless fields have no effect on a single node without an API server; a
	// warning says so.
	meaningless class = "meaningless"
)

// row is what the table says of one field. A supported row of an object speaks for the
// object alone, so each of its fields has a row too; a refused or meaningless one speaks
// for all below it.
type row struct {
	// kind is the kind of a workload, or "" for a Pod and the pod template of a workload.
	kind string
	// path is the field's path, [] for the items of a list, {} for those of a map.
	path  string
	class class
	// note is the reason of a field that is not supported, or a remark on one that is.
	note string
	// except are the values, as text, that are supported although the field is not.
	except []string
}

// rows returns a row for every field, in the order of the documentation.
func rows() []row {
	return slices.Concat(metaRows, podRows, containerRows, securityRows, volumeRows, workloadRows)
}

// alike lists subtrees that are classed like another one, where no row of their own says
// otherwise.
var alike = [][2]string{
	{"spec.containers[].readinessProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].startupProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].lifecycle.postStart", "spec.containers[].lifecycle.preStop"},
	{"spec.initContainers[]", "spec.containers[]"},
}
