// Package fields classes every field that a pod can have: what runonce does with it, or
// why it does not. Nothing that a manifest says is ignored in silence.
package fields

// Class is what becomes of a field.
type Class string

// The classes of a field.
const (
	// Supported fields do what they do in Kubernetes.
	Supported Class = "supported"
	// Refused fields stop the run before anything is started.
	Refused Class = "refused"
	// Meaningless fields have no effect on a single node without an API server; a
	// warning says so.
	Meaningless Class = "meaningless"
)

// Row is what the table says of one field. A Supported row of an object speaks for the
// object alone, so each of its fields has a row too; a Refused or Meaningless one speaks
// for all below it.
type Row struct {
	// Kind is the kind of a workload, or "" for a Pod and the pod template of a workload.
	Kind string
	// Path is the field's path, [] for the items of a list, {} for those of a map.
	Path  string
	Class Class
	// Note is the reason of a field that is not supported, or a remark on one that is.
	Note string
	// Except are the values, as text, that are supported although the field is not.
	Except []string
}

// Table returns a row for every field, in the order of the documentation.
func Table() []Row {
	var rows []Row
	for _, part := range [][]Row{metaRows, podRows, containerRows, securityRows, volumeRows, workloadRows} {
		rows = append(rows, part...)
	}
	return rows
}

// alike lists subtrees that are classed like another one, where no row of their own says
// otherwise.
var alike = [][2]string{
	{"spec.containers[].readinessProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].startupProbe", "spec.containers[].livenessProbe"},
	{"spec.containers[].lifecycle.postStart", "spec.containers[].lifecycle.preStop"},
	{"spec.initContainers[]", "spec.containers[]"},
}
