package manifests

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
)

// The fields of the annotations about the order, the weight and the ports of pods.
const (
	fieldDependsOn = "metadata.annotations[" + podspec.AnnotationDependsOn + "]"
	fieldOptional  = "metadata.annotations[" + podspec.AnnotationOptional + "]"
	fieldPublish   = "metadata.annotations[" + podspec.AnnotationPublish + "]"
)

// workloadKinds are the kinds whose pods others can depend on by the name of the workload.
var workloadKinds = []string{"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "CronJob"}

// Dependencies returns what the pods of the input depend on.
func (s *Set) Dependencies() map[types.NamespacedName][]podspec.Dependency { return s.dependencies }

// checkOrder checks the annotations about order and weight, and the names of others, of a pod, or of a template whose fields begin
// with prefix, and keeps what they say.
func (e *entry) checkOrder(meta metav1.ObjectMeta, namespace, prefix string) {
	if text, ok := meta.Annotations[podspec.AnnotationDependsOn]; ok {
		var problems []string
		e.dependsOn, problems = podspec.ParseDependencies(text, namespace)
		for _, problem := range problems {
			e.fail(prefix+fieldDependsOn, problem, "")
		}
		e.orderField = prefix + fieldDependsOn
	}
	for name := range meta.Annotations {
		if strings.HasPrefix(name, "runonce/") && !slices.Contains(podspec.Annotations, name) {
			e.warn(prefix+"metadata.annotations["+name+"]", "is unknown and has no effect", decode.DidYouMean(name, podspec.Annotations))
		}
	}
	if text, ok := meta.Annotations[podspec.AnnotationOptional]; ok && text != "true" && text != "false" {
		e.fail(prefix+fieldOptional, fmt.Sprintf("is %q: must be \"true\" or \"false\"", text), "")
	}
}

// checkPublish checks the annotation about the ports of a pod, or of a template whose fields begin with prefix.
func (e *entry) checkPublish(meta metav1.ObjectMeta, spec *v1.PodSpec, prefix string) {
	text, ok := meta.Annotations[podspec.AnnotationPublish]
	if !ok {
		return
	}
	all, problems := podspec.ParsePublish(text)
	spec = spec.DeepCopy()
	for _, p := range all {
		if len(spec.Containers) == 0 {
			break // which is another problem
		}
		port, problem := podspec.PublishedPort(spec, p)
		if problem != "" {
			problems = append(problems, problem)
			continue
		}
		port.HostPort = 1 // so that it is not published again
	}
	for _, problem := range problems {
		e.fail(prefix+fieldPublish, problem, "")
	}
}

// checkWorkloadOrder refuses these annotations where they would have no effect.
func (e *entry) checkWorkloadOrder(meta metav1.Object, prefix string) {
	for name, field := range map[string]string{podspec.AnnotationDependsOn: fieldDependsOn, podspec.AnnotationOptional: fieldOptional, podspec.AnnotationPublish: fieldPublish} {
		if _, ok := meta.GetAnnotations()[name]; ok {
			e.fail(field, "has no effect on the pods of a "+e.kind, "move it to "+prefix+"metadata.annotations")
		}
	}
}

// group is one or more pods that a name stands for.
type group struct {
	kind    string
	entry   *entry // which defines them, or the Service that selects them
	members []*v1.Pod
	// pods are the names of the members, or that of the document if it has errors.
	pods []types.NamespacedName
	// selected are the documents that define the pods of a Service.
	selected []*entry
}

// describe names the group and where it is defined.
func (g group) describe(name string) string {
	return fmt.Sprintf("%s %q at %s", g.kind, name, g.entry.source())
}

// groups are what names stand for.
type groups struct {
	all   map[types.NamespacedName][]group
	found map[types.NamespacedName]resolution
}

// resolution is what a name stands for, or why that is not known.
type resolution struct {
	group         group
	problem, hint string
}

// newGroups returns the groups of pods of the entries: each pod, and the pods of each workload and Service.
func (r *reader) newGroups() groups {
	gs := groups{all: map[types.NamespacedName][]group{}, found: map[types.NamespacedName]resolution{}}
	for _, e := range r.entries {
		for _, pe := range e.pods {
			id := podspec.NameOf(pe.pod)
			gs.all[id] = append(gs.all[id], group{kind: "Pod", entry: e, members: []*v1.Pod{pe.pod}, pods: []types.NamespacedName{id}})
		}
		id := types.NamespacedName{Namespace: r.orDefault(e.namespace), Name: e.name}
		switch {
		case slices.Contains(workloadKinds, e.kind):
			gs.all[id] = append(gs.all[id], e.group(id))
		case e.kind == "Pod" && len(e.pods) == 0: // it has errors
			gs.all[id] = append(gs.all[id], e.group(id))
		}
	}
	for _, e := range r.entries {
		id := types.NamespacedName{Namespace: r.orDefault(e.namespace), Name: e.name}
		if s, ok := r.serviceOf(e); ok {
			gs.all[id] = append(gs.all[id], e.selectedGroup(r.selection().selected(s)))
		} else if e.isService() && len(gs.all[id]) == 0 { // it has errors
			gs.all[id] = append(gs.all[id], e.group(id))
		}
	}
	return gs
}

// selectedGroup returns the pods that the Service of a document selects.
func (e *entry) selectedGroup(selected []*candidate) group {
	g := group{kind: e.kind, entry: e}
	for _, c := range selected {
		g.pods = append(g.pods, c.name)
		if c.pod != nil {
			g.members = append(g.members, c.pod)
		}
		if n := len(g.selected); n == 0 || g.selected[n-1] != c.entry {
			g.selected = append(g.selected, c.entry)
		}
	}
	return g
}

// group returns the pods of a document with the name.
func (e *entry) group(id types.NamespacedName) group {
	g := group{kind: e.kind, entry: e}
	for _, pe := range e.pods {
		g.members, g.pods = append(g.members, pe.pod), append(g.pods, podspec.NameOf(pe.pod))
	}
	if len(g.pods) == 0 && e.failed() {
		g.pods = []types.NamespacedName{id}
	}
	return g
}

// resolve returns what a name stands for.
func (gs groups) resolve(id types.NamespacedName) resolution {
	known, ok := gs.found[id]
	if ok {
		return known
	}
	candidates := gs.all[id]
	if len(candidates) == 0 {
		known = resolution{problem: fmt.Sprintf("there is no pod, workload or Service %q in the input", id.Name), hint: gs.similar(id)}
	} else if known.group = candidates[0]; len(known.group.pods) == 0 {
		known.problem = known.group.describe(id.Name) + " has no pods"
	}
	for _, other := range candidates[min(1, len(candidates)):] {
		if other.kind != known.group.kind && !slices.Equal(other.pods, known.group.pods) {
			known = resolution{
				problem: fmt.Sprintf("%q is ambiguous: %s, %s", id.Name, known.group.describe(id.Name), other.describe(id.Name)),
				hint:    "rename one of them",
			}
			break
		}
	}
	gs.found[id] = known
	return known
}

// similar returns a hint about a name that stands for nothing.
func (gs groups) similar(missing types.NamespacedName) string {
	var names []string
	elsewhere := ""
	for id := range gs.all {
		switch {
		case id.Namespace == missing.Namespace:
			names = append(names, id.Name)
		case id.Name == missing.Name && (elsewhere == "" || id.Namespace < elsewhere):
			elsewhere = id.Namespace
		}
	}
	if elsewhere != "" {
		return fmt.Sprintf("there is one in namespace %s, this is about %s", elsewhere, missing.Namespace)
	}
	if len(names) > decode.MaxNames {
		return ""
	}
	slices.Sort(names)
	return decode.DidYouMean(missing.Name, names)
}

// resolveDependencies finds the pods that others depend on, and refuses dependencies that can never be
// met.
func (r *reader) resolveDependencies() {
	isDependent := func(e *entry) bool { return len(e.dependsOn) > 0 }
	if !slices.ContainsFunc(r.entries, isDependent) {
		return
	}
	gs := r.newGroups()
	graph := cycleFinder{edges: map[*entry][]*entry{}, state: map[*entry]int{}}
	for _, e := range r.entries {
		for i := range e.dependsOn {
			if on := e.resolveDependency(gs, &e.dependsOn[i]); on.entry != nil {
				graph.edges[e] = append(graph.edges[e], on.entry)
				if on.selected != nil {
					graph.edges[on.entry] = on.selected
				}
			}
		}
	}
	for _, e := range r.entries {
		if isDependent(e) {
			graph.visit(e)
		}
	}
}

// resolveDependency finds the pods of a dependency, and returns them, without a document if there are none.
func (e *entry) resolveDependency(gs groups, d *podspec.Dependency) group {
	id := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
	found := gs.resolve(id)
	if found.problem != "" {
		e.fail(e.orderField, found.problem, found.hint)
		return group{}
	}
	d.Pods = found.group.pods
	for _, pod := range found.group.members {
		if c := podspec.Endless(pod); c != nil && d.Condition == podspec.UntilCompleted {
			e.fail(e.orderField, fmt.Sprintf("pod %q never completes: container %q is restarted whenever it exits", pod.Name, c.Name),
				"wait for it to be ready, or set its restartPolicy to Never or OnFailure")
			return found.group
		}
		if podspec.NameOf(pod) != id {
			podspec.AddGroup(pod, d.Name)
		}
	}
	return found.group
}

// cycleFinder finds the cycles of a graph of documents by a depth-first search. All pods of a document
// depend on the same, so that a cycle of documents is one of pods. A Service is followed by the documents
// whose pods it selects.
type cycleFinder struct {
	edges map[*entry][]*entry
	state map[*entry]int // 0: not seen, 1: on the path, 2: done
	path  []*entry
}

func (f *cycleFinder) visit(e *entry) {
	f.state[e] = 1
	f.path = append(f.path, e)
	for _, next := range f.edges[e] {
		switch f.state[next] {
		case 0:
			f.visit(next)
		case 1:
			f.refuse(f.path[slices.Index(f.path, next):])
		}
	}
	f.path = f.path[:len(f.path)-1]
	f.state[e] = 2
}

// refuse notes an error about a cycle, where the first one depends on the next and not a Service selects it.
func (f *cycleFinder) refuse(cycle []*entry) {
	start := slices.IndexFunc(cycle, func(e *entry) bool { return e.orderField != "" })
	cycle = slices.Concat(cycle[start:], cycle[:start])
	first := cycle[0]
	names := make([]string, 0, len(cycle)+1)
	for _, e := range append(slices.Clone(cycle), first) {
		name := e.name
		if e.namespace != first.namespace {
			name = e.namespace + "/" + name
		}
		names = append(names, name)
	}
	first.fail(first.orderField, "depends on itself: "+strings.Join(names, " -> "), "")
}

// keepDependencies keeps what the valid pods depend on.
func (r *reader) keepDependencies() {
	for _, e := range r.entries {
		for _, pod := range e.valid {
			if len(e.dependsOn) == 0 {
				break
			}
			if r.set.dependencies == nil {
				r.set.dependencies = map[types.NamespacedName][]podspec.Dependency{}
			}
			r.set.dependencies[podspec.NameOf(pod)] = e.dependsOn
		}
	}
}
