package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
)

// choiceFlags choose some of the pods that a command is about. With both flags, pods have to meet both.
type choiceFlags struct {
	selectorText string
	names        list
	selector     labels.Selector // set by check
}

func (f *choiceFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "selector", Aliases: []string{"l"}, Destination: &f.selectorText, Usage: "only pods that `LABELS` select, as in app=web", DefaultText: "all"},
		listFlag(&f.names, "", "only the pod or the workload `NAME`", "only", "all"),
	}
}

func (f *choiceFlags) check() (err error) {
	if f.selector, err = labels.Parse(f.selectorText); err != nil {
		return usagef("--selector %q: %w", f.selectorText, err)
	}
	if slices.Contains(f.names.values, "") {
		return usagef("--only %q: must be names of pods", f.names.String())
	}
	return nil
}

// given says whether pods are chosen at all.
func (f *choiceFlags) given() bool { return f.selectorText != "" || len(f.names.values) > 0 }

// String is the choice for people.
func (f *choiceFlags) String() string {
	var parts []string
	if f.selectorText != "" {
		parts = append(parts, "--selector "+f.selectorText)
	}
	if len(f.names.values) > 0 {
		parts = append(parts, "--only "+f.names.String())
	}
	return strings.Join(parts, " and ")
}

// choose returns those of the pods that are chosen, in their order. A name that names none of them is an error, which says
// what there is.
func (f *choiceFlags) choose(pods []*v1.Pod) ([]*v1.Pod, error) {
	chosen := only(pods, func(pod *v1.Pod) bool { return f.selector.Matches(labels.Set(pod.Labels)) })
	if len(f.names.values) == 0 {
		return chosen, nil
	}
	named := map[*v1.Pod]bool{}
	for _, ref := range f.names.values {
		found, err := resolve(ref, pods, podspec.NameOf, errNoPod)
		if errors.Is(err, errNoPod) {
			found, err = resolve(withoutWorkload(ref), pods, workloadOf, usagef("--only %q: there is no such pod or workload%s", ref, besides(pods)))
		}
		if err != nil {
			return nil, err
		}
		for _, pod := range found {
			named[pod] = true
		}
	}
	return only(chosen, func(pod *v1.Pod) bool { return named[pod] }), nil
}

// namespaces returns the namespaces that names have, and references besides.
func (f *choiceFlags) namespaces(refs []string) []string {
	for _, name := range f.names.values {
		refs = append(slices.Clip(refs), withoutWorkload(name))
	}
	return namespacesIn(refs)
}

// workloadOf returns the name of the workload that has made the pod, none for a pod that has no other. On a cluster it
// is known of Jobs alone.
func workloadOf(pod *v1.Pod) (none types.NamespacedName) {
	job, _ := podspec.JobOf(pod)
	name := job.Name
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		name = cmp.Or(name, owner.Name)
	}
	if name == "" {
		return none
	}
	return types.NamespacedName{Namespace: pod.Namespace, Name: name}
}

// withoutWorkload returns the name of a workload without the kind that may be before it, as in job/migrate.
func withoutWorkload(ref string) string {
	kind, name, ok := strings.Cut(ref, "/")
	if ok && slices.Contains(workloadWords, strings.ToLower(kind)) {
		return name
	}
	return ref
}

// workloadWords are the words for workloads of kubectl.
var workloadWords = []string{
	"deployment", "deploy", "replicaset", "rs", "replicationcontroller", "rc", "statefulset", "sts", "daemonset", "ds", "job",
}

// besides says which pods there are, for the end of an error.
func besides(pods []*v1.Pod) string {
	const most = 10
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, podspec.ShortName(podspec.NameOf(pod)))
	}
	names = distinctNames(names)
	switch more := len(names) - most; {
	case len(names) == 0:
		return "; there are no pods"
	case more > 0:
		return fmt.Sprintf("; there are the pods %s and %d more", strings.Join(names[:most], ", "), more)
	}
	return "; there are the pods " + strings.Join(names, ", ")
}

// narrow leaves in the input the pods that are chosen, with what they need of its other pods, and says what that is. It
// returns those that are chosen.
func (f *choiceFlags) narrow(c *console, set *manifests.Set) ([]*v1.Pod, error) {
	if !f.given() {
		return set.Pods, nil
	}
	all := set.Pods
	chosen, err := f.choose(all)
	if err != nil {
		return nil, err
	}
	if len(chosen) == 0 {
		return nil, usagef("%s selects none of the input%s", f, besides(all))
	}
	if added := set.Narrow(chosen); len(added) > 0 {
		names := make([]string, 0, len(added))
		for _, pod := range added {
			names = append(names, podspec.ShortName(podspec.NameOf(pod)))
		}
		c.notice("the pods that are chosen need others, which are run as well: " + strings.Join(names, ", "))
	}
	return chosen, nil
}
