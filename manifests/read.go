package manifests

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/manifests/check"
	"github.com/runonce/runonce/manifests/claims"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/fault"
	"github.com/runonce/runonce/manifests/fields"
	"github.com/runonce/runonce/manifests/kube"
	"github.com/runonce/runonce/manifests/podsecurity"
	"github.com/runonce/runonce/manifests/source"
)

// Options say how manifests are read. The zero value reads files and directories with
// the default limits.
type Options struct {
	// Recursive also reads the directories below a directory.
	Recursive bool
	// Stdin is what the path "-" reads.
	Stdin io.Reader
	// SHA256 is the digest, in hex, that what a URL holds must have; "" for any.
	SHA256 string
	// RunCronJobs runs the job of each CronJob once; otherwise they are left out.
	RunCronJobs bool
	// NodeName is the name of this node, for a warning about pods that are for another;
	// "" when it is not known.
	NodeName string
	// PodSecurity is the level of the Pod Security Standards that every pod has to keep
	// to: "" or privileged for none, baseline, restricted, each with or without a version
	// ("baseline:v1.30"). Namespaces of the input can only ask for more.
	PodSecurity string
	// Limits bound what a file may cost.
	Limits decode.Limits
}

// Read reads every manifest of a directory, in byte order of the file names. The Set is
// never nil: it holds what is sound, also when the error, of type Faults, names what is not.
func Read(fsys fs.FS) (*Set, error) {
	o := Options{}
	return read(source.FS(context.Background(), fsys, o.source()), o)
}

// ReadPaths reads every manifest of the files, directories and URLs given, in the given
// order; "-" is standard input. It returns like Read.
func ReadPaths(ctx context.Context, paths []string, o Options) (*Set, error) {
	return read(source.Paths(ctx, paths, o.source()), o)
}

func (o Options) source() source.Options {
	return source.Options{
		Recursive: o.Recursive, Stdin: o.Stdin, SHA256: o.SHA256,
		Limit: int64(o.Limits.WithDefaults().Bytes),
	}
}

// entry is one document of the input, and what it became.
type entry struct {
	doc             decode.Document
	kind            string
	namespace, name string
	remote          bool // from a URL
	pods            []podEntry
	faults          Faults
}

// podEntry is a pod of a document, whose fields stand below prefix there.
type podEntry struct {
	pod    *v1.Pod
	prefix string
	// first is false for further pods of the same template.
	first bool
}

type reader struct {
	options Options
	rules   kube.Rules
	levels  *podsecurity.Rules
	classes *fields.Classes
	set     *Set
	entries []*entry
	seen    map[object]*entry
	broken  map[object]bool // supporting objects that do not decode
	skipped map[string]bool // "apiVersion kind" that has been warned about
	defined map[string]bool // "group kind" of the input's CustomResourceDefinitions
	unknown []*entry
	// templated are the claims of workloads' templates, problems what is the matter with
	// claims, by "namespace/name".
	templated []*v1.PersistentVolumeClaim
	problems  map[string]claims.Problem

	generated map[string]int // names asked for by documents of this content
}

// object identifies an object of the input.
type object struct{ kind, namespace, name string }

func read(files iter.Seq[source.File], o Options) (*Set, error) {
	floor, err := podsecurity.Parse(o.PodSecurity)
	if err != nil {
		return newSet(), Faults{{Message: err.Error(), Severity: fault.Error}}
	}
	r := &reader{
		options: o, rules: kube.New(), levels: podsecurity.New(floor), classes: fields.New(), set: newSet(),
		seen: map[object]*entry{}, skipped: map[string]bool{}, defined: map[string]bool{},
		generated: map[string]int{},
		broken:    map[object]bool{},
	}
	for f := range files {
		r.file(f)
	}
	r.rest()
	r.bindClaims()
	for _, e := range r.entries {
		for _, p := range e.pods {
			r.finish(e, p)
		}
	}
	return r.set, r.result()
}

// file decodes the documents of a file and loads them one by one.
func (r *reader) file(f source.File) {
	if len(f.Faults) > 0 {
		r.entries = append(r.entries, &entry{doc: decode.Document{File: f.Name}, faults: f.Faults})
		return
	}
	docs, faults := decode.Split(f.Name, f.Data, r.options.Limits)
	first := len(r.entries)
	at := make(map[place]*entry, len(docs))
	for _, doc := range docs {
		e := &entry{doc: doc, kind: doc.ObjectKind(), remote: f.Remote}
		e.namespace, e.name = doc.Text("metadata.namespace"), doc.Text("metadata.name")
		at[place{doc.Index, doc.Prefix}] = e
		r.entries = append(r.entries, e)
	}
	var others []*entry
	for _, f := range faults {
		if e := owner(at, f); e != nil {
			e.faults = append(e.faults, f)
			continue
		}
		doc := decode.Document{File: f.File, Index: f.Document, Start: f.Line}
		others = append(others, &entry{doc: doc, faults: Faults{f}})
	}
	for _, e := range r.entries[first:] {
		r.load(e)
	}
	r.entries = append(r.entries, others...)
	if len(r.entries) == first {
		e := &entry{doc: decode.Document{File: f.Name}}
		e.faults = Faults{{File: f.Name, Message: "holds no document", Severity: fault.Warning}}
		r.entries = append(r.entries, e)
	}
	slices.SortStableFunc(r.entries[first:], func(a, b *entry) int { return cmp.Compare(a.doc.Index, b.doc.Index) })
}

// place is where an object stands in its file: in which document, and where in a List.
type place struct {
	document int
	prefix   string
}

// owner returns the entry inside which an error lies, nil for one of the file.
func owner(at map[place]*entry, f Fault) *entry {
	path := f.Field
	for path != "" && at[place{f.Document, path}] == nil {
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return at[place{f.Document, path}]
}

// result sorts all faults out into warnings and errors.
func (r *reader) result() error {
	var all Faults
	for _, e := range r.entries {
		e.faults = bounded(e.faults)
		all = append(all, e.faults...)
		errs := e.faults.Of(fault.Error)
		if len(errs) == 0 {
			continue
		}
		line := 0
		if e.doc.Index > 0 {
			line = e.doc.Line("")
		}
		r.set.Invalid = append(r.set.Invalid, Invalid{
			File: e.doc.File, Document: e.doc.Index, Line: line, Kind: e.kind,
			Namespace: e.namespace, Name: e.name, Faults: errs.Sort(),
		})
	}
	all = all.Sort()
	r.set.Warnings = all.Of(fault.Warning)
	return all.Of(fault.Error).Err()
}

// bounded leaves out what nobody would read: a document that is no manifest can have a
// fault in every line.
func bounded(faults Faults) Faults {
	const most = 1_000
	if len(faults) <= most {
		return faults
	}
	last, severity := faults[len(faults)-1], fault.Warning
	if len(faults.Of(fault.Error)) > 0 {
		severity = fault.Error
	}
	return append(faults[:most:most], Fault{
		File: last.File, Document: last.Document, Line: last.Line, Severity: severity,
		Message: fmt.Sprintf("%d more faults are not shown", len(faults)-most),
	})
}

func (e *entry) fault(field, message, hint string) {
	e.faults = append(e.faults, e.doc.Fault(field, message, hint))
}

func (e *entry) warn(field, message, hint string) {
	e.faults = append(e.faults, e.doc.Warning(field, message, hint))
}

// invalid notes what Kubernetes' validation says of an object below prefix.
func (e *entry) invalid(errs field.ErrorList, prefix string) {
	e.faults = append(e.faults, check.Errors(e.doc, errs, prefix)...)
}

func (e *entry) failed() bool { return len(e.faults.Of(fault.Error)) > 0 }

// decodeInto decodes the document strictly; false means that o cannot be used.
func (r *reader) decodeInto(e *entry, o any) bool {
	e.faults = append(e.faults, decode.Into(e.doc, o)...)
	return !e.failed()
}

// register notes where an object is and faults a second one of the same name.
func (r *reader) register(e *entry, kind string, meta *metav1.ObjectMeta) bool {
	if kind == e.kind {
		e.namespace, e.name = meta.Namespace, meta.Name
	}
	id := object{kind, meta.Namespace, meta.Name}
	if id.name == "" {
		return true // Kubernetes' rules have said so
	}
	first, dup := r.seen[id]
	if !dup {
		r.seen[id] = e
		return true
	}
	e.fault("metadata.name", fmt.Sprintf("%s %q is already at %s", kind, displayName(meta), first.place()), "rename one or drop one")
	return false
}

func (e *entry) place() string {
	return fmt.Sprintf("%s:%d", e.doc.File, e.doc.Line(""))
}

func displayName(meta *metav1.ObjectMeta) string {
	if meta.Namespace == "" {
		return meta.Name
	}
	return meta.Namespace + "/" + meta.Name
}
