package manifests

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/validation"
)

// Options say how manifests are read. The zero value reads files and directories.
type Options struct {
	// Recursive also reads the directories below a directory.
	Recursive bool
	// Stdin is what the path "-" reads.
	Stdin io.Reader
	// SHA256 is the digest, in hex, that the content of the URL must have; "" for any.
	SHA256 string
	// Header is sent with requests for URLs, which then have to be of one server, and to no other.
	Header http.Header
	// Format is what the documents are: FormatKubernetes, as which "" counts, or FormatGCE.
	Format string
	// RunCronJobs runs the job of each CronJob once; otherwise CronJobs have no pods.
	RunCronJobs bool
	// NodeName is the name of this node, for a warning about pods of another one; "" when it
	// is not known.
	NodeName string
	// PodSecurity is the level of the Pod Security Standards that every pod has to meet: "" or
	// privileged for none, baseline or restricted, with or without a version
	// ("baseline:v1.30"). Namespaces of the input can only raise it.
	PodSecurity string
	// Variables are substituted in the texts of the manifests; nil for none. The function is called
	// from several goroutines.
	Variables func(name string) (string, bool)

	// Namespace is that of objects which name none; "" is default.
	Namespace string
	// Cluster says that the pods run on a cluster: what they refer to may be there and not in the
	// input, and whether a node supports their fields is not known.
	Cluster bool

	// ClusterDomain is the domain in the names of pods; "" when it is not known.
	ClusterDomain string

	// RequireDigest refuses pods with images that are not given by their digest.
	RequireDigest bool
	// Stream gives the container of each pod that has only one an input, which ends with the first one who attaches to
	// it. Terminal gives it a terminal as well.
	Stream, Terminal bool
	// Secrets are keys of Secrets that are not in manifests, in the order in which they replace each other and
	// those of the input.
	Secrets []SecretKey
	// Places keeps where the pods and Services are in the input, for Set.Refuse.
	Places bool

	client *http.Client // fetches URLs; nil is http.DefaultClient
}

// ReadPaths reads every manifest of the files, directories and URLs given, in the given order, and
// those of a directory in byte order of their names; "-" is standard input. It uses several
// goroutines. The Set is never nil: it has the valid objects even when there is an error, of type
// Diagnostics.
func ReadPaths(ctx context.Context, paths []string, o Options) (*Set, error) {
	return read(ctx, o, func(visit func(inputFile)) { inputPaths(ctx, paths, o, visit) })
}

// entry is one document of the input with its pods and problems.
type entry struct {
	doc             decode.Document
	kind            string
	namespace, name string
	generated       string // its name, if the document has only the beginning of one
	remote          bool   // from a URL
	path            string // of the file, for podspec.AnnotationPath
	pods            []podEntry
	problems        Diagnostics
	rest            step // what is left to do once the documents before it are known
	valid           []*v1.Pod
	templated       []*v1.PersistentVolumeClaim // of the templates of a workload
	owners          []podspec.Object            // that have made the pods: the workload, after what it has made itself
	index           int                         // in the input, for Set.places
	dependsOn       []podspec.Dependency        // of each of its pods
	orderField      string                      // that says so
}

// podEntry is a pod of a document, with its fields below prefix there.
type podEntry struct {
	pod    *v1.Pod
	prefix string
	// first is false for further pods of the same template.
	first bool
}

type reader struct {
	options Options
	rules   *validation.Rules
	fields  *fieldTable
	set     *Set
	files   []*fileReader // that are being read, in the order of the input
	slots   chan struct{} // held while a file is read

	collectAgain func() // undoes collectLess

	entries []*entry
	unknown []*entry // of kinds that are neither supported nor known

	seen      map[object]*entry
	broken    map[object]bool // objects with errors, those of the cluster in namespace default
	ignored   map[string]bool // "apiVersion kind" that has been warned about
	defined   map[string]bool // "group kind" of the input's CustomResourceDefinitions
	generated map[string]int  // how many names were generated, by content of the document

	unbound    map[*v1.PersistentVolumeClaim]*claimProblem
	endpoints  map[string]*entry // of Services, by what they are
	selection  func() *selection // once all pods are known
	priorities priorities
	names      func() *nameIndex // once all objects are known
}

func read(ctx context.Context, o Options, input func(visit func(inputFile))) (*Set, error) {
	o.Namespace = cmp.Or(o.Namespace, v1.NamespaceDefault)
	rules, err := validation.New(o.PodSecurity, o.Namespace)
	if err != nil {
		return &Set{}, Diagnostics{{Message: err.Error(), Severity: SeverityError}}
	}
	r := &reader{
		options: o, rules: rules, fields: newFieldTable(), set: &Set{objects: map[object]metav1.Object{}},
		seen: map[object]*entry{}, broken: map[object]bool{}, ignored: map[string]bool{}, defined: map[string]bool{},
		generated: map[string]int{}, endpoints: map[string]*entry{}, slots: make(chan struct{}, goruntime.GOMAXPROCS(0)), collectAgain: func() {},
	}
	defer func() { r.collectAgain() }()
	input(func(f inputFile) { r.file(ctx, f) })
	r.finish(ctx, 0)
	r.checkUnknown()
	if err := r.addSecrets(); err != nil {
		return &Set{}, err
	}
	r.addClaims()
	r.priorities, r.names, r.selection = r.set.priorities(), sync.OnceValue(r.set.names), sync.OnceValue(r.newSelection)
	r.checkServices()
	r.resolveDependencies()
	decode.InParallel(len(r.entries), func(i int) { r.resolve(r.entries[i]) })
	r.keepDependencies()
	for _, e := range r.entries {
		r.set.Pods = append(r.set.Pods, e.valid...)
		if len(e.valid) > 0 {
			r.set.workloads = append(r.set.workloads, e.withOrigin()...)
		}
	}
	if o.Places {
		r.keepPlaces()
	}
	return r.set, r.result()
}

// position is where an object is in its file: in which document, and where in a List.
type position struct {
	document int
	prefix   string
}

// owner returns the entry that an error is about, nil for an error of the file.
func owner(at map[position]*entry, p Diagnostic) *entry {
	path := p.Field
	for path != "" && at[position{p.Document, path}] == nil {
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return at[position{p.Document, path}]
}

// result separates warnings and errors.
func (r *reader) result() error {
	var all Diagnostics
	for _, e := range r.entries {
		e.problems = bounded(e.problems)
		all = append(all, e.problems...)
		errs := e.problems.Of(SeverityError)
		if len(errs) == 0 {
			continue
		}
		r.set.Invalid = append(r.set.Invalid, e.invalidDocument(errs))
	}
	all = all.Sort()
	r.set.Warnings = all.Of(SeverityWarning)
	return all.Of(SeverityError).Err()
}

func (e *entry) invalidDocument(errs Diagnostics) Invalid {
	line := 0
	if e.doc.Index > 0 {
		line = e.doc.Line("")
	}
	return Invalid{
		File: e.doc.File, Path: e.path, Line: line, Kind: e.kind, Namespace: e.namespace, Name: e.name, Problems: errs.Sort(),
		Optional: len(e.pods) > 0 && podspec.IsOptional(e.pods[0].pod),
	}
}

// bounded drops problems that nobody would read: a file that is not a manifest can have one in
// every line.
func bounded(problems Diagnostics) Diagnostics {
	const most = 1_000
	if len(problems) <= most {
		return problems
	}
	last, severity := problems[len(problems)-1], SeverityWarning
	if len(problems.Of(SeverityError)) > 0 {
		severity = SeverityError
	}
	return append(problems[:most:most], Diagnostic{
		File: last.File, Document: last.Document, Line: last.Line, Severity: severity,
		Message: fmt.Sprintf("%d more problems are not shown", len(problems)-most),
	})
}

func (e *entry) fail(field, message, hint string) {
	if e.doc.IsWrong(field) {
		return // there is an error about it
	}
	e.problems = append(e.problems, e.doc.Error(field, message, hint))
}

func (e *entry) warn(field, message, hint string) {
	e.problems = append(e.problems, e.doc.Warning(field, message, hint))
}

// invalid notes the errors that Kubernetes' validation finds in an object.
func (e *entry) invalid(errs field.ErrorList) {
	e.problems = append(e.problems, validation.Diagnose(e.doc, errs, "")...)
}

func (e *entry) failed() bool { return len(e.problems.Of(SeverityError)) > 0 }

// decodeInto decodes the document strictly; false means that o cannot be used. With errors o has
// what could be decoded, so that its validation finds the others.
func (r *reader) decodeInto(e *entry, o metav1.Object) bool {
	e.problems = append(e.problems, decode.Into(e.doc, o)...)
	ok := true
	if e.failed() {
		e.doc, ok = decode.Partly(e.doc, o, e.problems)
	}
	if e.generated != "" {
		o.SetName(e.generated)
	}
	return ok
}

// nameless says that it is not known what the object is called, since part of its metadata is
// wrong.
func (e *entry) nameless() bool {
	return slices.ContainsFunc(e.doc.Wrong(), func(w decode.Wrong) bool {
		return strings.HasPrefix(w.Path, "metadata") && !strings.HasPrefix(w.Path, "metadata.labels") && !strings.HasPrefix(w.Path, "metadata.annotations")
	})
}

// register notes where an object is defined and rejects a second one of the same name.
func (r *reader) register(e *entry, kind string, o metav1.Object) bool {
	if kind == e.kind {
		e.namespace, e.name = o.GetNamespace(), o.GetName()
	}
	id := object{kind, o.GetNamespace(), o.GetName()}
	if id.name == "" || e.nameless() {
		return true // there is an error about it
	}
	first, dup := r.seen[id]
	if !dup {
		r.seen[id] = e
		return true
	}
	hint := "rename or remove one"
	if e.path != "" && first.path == e.path && first.doc.Index == e.doc.Index && first.doc.Prefix == e.doc.Prefix {
		hint = "two of the paths lead to this file"
	}
	e.fail("metadata.name", fmt.Sprintf("%s %q is already defined at %s", kind, displayName(o), first.sourceOf(kind)), hint)
	return false
}

// sourceOf returns where the document is, and what it is if that has made the object.
func (e *entry) sourceOf(kind string) string {
	if kind == e.kind {
		return e.source()
	}
	return fmt.Sprintf("%s, of %s %q", e.source(), e.kind, e.name)
}

func (e *entry) source() string {
	return fmt.Sprintf("%s:%d", e.doc.File, e.doc.Line(""))
}

func displayName(o metav1.Object) string {
	return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}
