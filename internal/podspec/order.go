package podspec

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Until is what a pod must have reached: for the goal of a run, or for those that depend on it.
type Until string

// What a pod must have reached. UntilRunning: every container is running, or has exited with code 0
// and is not restarted. UntilReady: its probes have passed as well. UntilCompleted: as the goal of a
// run, Never and OnFailure pods have ended, Always pods are ready; as a condition of others, the pod
// has succeeded.
const (
	UntilRunning   Until = "running"
	UntilReady     Until = "ready"
	UntilCompleted Until = "completed"
)

// Dependency is a pod, or a group of pods such as those of a workload or a Service, that must have reached a
// condition before the pod that depends on it starts.
type Dependency struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Condition Until  `json:"condition"`
	// Pods are those that the name stands for. One that is not among the pods of a run is invalid. The
	// slice may be shared.
	Pods []types.NamespacedName `json:"-"`
}

// ID returns the dependency as a text: "namespace/name:condition".
func (d Dependency) ID() string { return d.Namespace + "/" + d.Name + ":" + string(d.Condition) }

func (d Dependency) in(namespace string) string {
	text := d.Name
	if d.Namespace != namespace {
		text = d.Namespace + "/" + text
	}
	if d.Condition != UntilReady {
		text += ":" + string(d.Condition)
	}
	return text
}

// Written returns dependencies as a pod of the namespace would write them, without what is the default.
func Written(list []Dependency, namespace string) string {
	texts := make([]string, 0, len(list))
	for _, d := range list {
		texts = append(texts, d.in(namespace))
	}
	return strings.Join(texts, ", ")
}

// ParseDependencies reads the value of AnnotationDependsOn of a pod in the namespace: items
// [NAMESPACE/]NAME[:CONDITION] between commas. It returns those that are correct, without their pods, and
// what is wrong with the others.
func ParseDependencies(text, namespace string) (list []Dependency, problems []string) {
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		d, problem := parseDependency(item, namespace)
		twice := func(other Dependency) bool { return other.Namespace == d.Namespace && other.Name == d.Name }
		switch {
		case problem != "":
			problems = append(problems, problem)
		case slices.ContainsFunc(list, twice):
			problems = append(problems, fmt.Sprintf("%q: is there twice", strings.TrimPrefix(d.Namespace+"/"+d.Name, namespace+"/")))
		default:
			list = append(list, d)
		}
	}
	return list, problems
}

// parseDependency reads one item, or says what is wrong with it.
func parseDependency(item, namespace string) (d Dependency, problem string) {
	if item == "" {
		return d, "has an empty item: write [NAMESPACE/]NAME[:CONDITION], separated by commas"
	}
	name, condition, given := strings.Cut(item, ":")
	d = Dependency{Namespace: namespace, Name: name, Condition: UntilReady}
	if given {
		d.Condition = Until(condition)
	}
	if before, after, ok := strings.Cut(name, "/"); ok {
		d.Namespace, d.Name = before, after
		if bad := validation.IsDNS1123Label(before); len(bad) > 0 {
			return d, fmt.Sprintf("%q: the namespace is not valid: %s", item, bad[0])
		}
	}
	if bad := validation.IsDNS1123Subdomain(d.Name); len(bad) > 0 {
		return d, fmt.Sprintf("%q: the name is not valid: %s", item, bad[0])
	}
	if !slices.Contains([]Until{UntilRunning, UntilReady, UntilCompleted}, d.Condition) {
		return d, fmt.Sprintf("%q: unknown condition %q: must be one of running, ready, completed", item, d.Condition)
	}
	return d, ""
}

// IsOptional says whether the exit code of a run does not depend on the pod.
func IsOptional(pod *v1.Pod) bool { return pod != nil && pod.Annotations[AnnotationOptional] == "true" }

// Dependents returns, for each of the pods, the indices of those that depend on it directly. It goes by
// their annotations, which may be those of several inputs: what it does not find or understand is left
// out, as are dependencies that close a cycle.
func Dependents(pods []*v1.Pod) [][]int {
	named, grouped := map[types.NamespacedName][]int{}, map[types.NamespacedName][]int{}
	for i, pod := range pods {
		named[NameOf(pod)] = append(named[NameOf(pod)], i)
		for group := range strings.SplitSeq(pod.Annotations[AnnotationGroups], ",") {
			id := types.NamespacedName{Namespace: pod.Namespace, Name: group}
			grouped[id] = append(grouped[id], i)
		}
	}
	g := dependents{before: make([][]int, len(pods)), after: make([][]int, len(pods)), state: make([]visit, len(pods))}
	for i, pod := range pods {
		text, ok := pod.Annotations[AnnotationDependsOn]
		if !ok {
			continue
		}
		list, _ := ParseDependencies(text, pod.Namespace)
		for _, d := range list {
			id := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
			found, ok := named[id]
			if !ok {
				found = grouped[id]
			}
			g.before[i] = append(g.before[i], found...)
		}
	}
	for i := range pods {
		g.visit(i)
	}
	return g.after
}

// visit is how far a depth-first search has come with a pod.
type visit int

const (
	unseen visit = iota
	open
	closed
)

// dependents turns the dependencies of pods around.
type dependents struct {
	before, after [][]int
	state         []visit
}

func (g *dependents) visit(i int) {
	if g.state[i] != unseen {
		return
	}
	g.state[i] = open
	for _, other := range g.before[i] {
		if g.state[other] != open { // else it would close a cycle
			g.after[other] = append(g.after[other], i)
			g.visit(other)
		}
	}
	g.state[i] = closed
}

// AddGroup notes that the pod belongs to a group on which others depend.
func AddGroup(pod *v1.Pod, name string) {
	groups := strings.Split(pod.Annotations[AnnotationGroups], ",")
	if slices.Contains(groups, name) {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	groups = slices.DeleteFunc(append(groups, name), func(g string) bool { return g == "" })
	slices.Sort(groups)
	pod.Annotations[AnnotationGroups] = strings.Join(groups, ",")
}
