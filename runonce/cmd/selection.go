package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
)

// selection is what one argument of down stands for.
type selection struct {
	pods   []*v1.Pod
	notice string // why there are none
	err    error  // for the end: the manifests have errors and there are no pods
}

// selectBy returns what an argument stands for: the pods that came from this path, else those of
// this name. An existing path is never a name.
func (p *program) selectBy(c *cli.Context, arg string, pods []*v1.Pod) (selection, error) {
	origin := manifests.Origin(arg)
	from := only(pods, func(pod *v1.Pod) bool { return podspec.CameFrom(pod, origin) })
	if origin == "-" {
		return p.selectByManifests(c, arg, from, pods)
	}
	if len(from) > 0 {
		return selection{pods: from}, nil
	}
	if isPath(arg) {
		return p.selectByManifests(c, arg, nil, pods)
	}
	named := only(pods, func(pod *v1.Pod) bool { return isNamed(arg, pod.Namespace, pod.Name) })
	switch names := fullNames(named); {
	case len(names) > 1:
		return selection{}, usagef("pod %q is in several namespaces: give one of %s", arg, strings.Join(names, ", "))
	case len(names) == 0:
		return selection{}, usagef("%q is neither a path nor a pod that runs here; see %q", arg, "runonce ps")
	}
	return selection{pods: named}, nil
}

// isPath says whether the argument exists, or can only be a path.
func isPath(arg string) bool {
	if _, err := os.Lstat(arg); err == nil {
		return true
	}
	return strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://")
}

// selectByManifests returns those of the candidates that the manifests name. When there are none
// it says so, and which pods of the same names came from elsewhere. Invalid manifests name pods
// as well: an error in its file must not keep a pod from being stopped.
func (p *program) selectByManifests(c *cli.Context, arg string, candidates, pods []*v1.Pod) (selection, error) {
	set, err := manifests.ReadPaths(c.Context, []string{arg}, p.downOptions(c))
	if cause := context.Cause(c.Context); cause != nil {
		return selection{}, cause
	}
	names := namesOf(set)
	has := func(pod *v1.Pod) bool { return names[podspec.FullName(pod)] }
	if found := only(candidates, has); len(found) > 0 {
		return selection{pods: found}, nil
	}
	notice := "no pod was started from " + arg
	if arg == "-" {
		notice = "no pod of these manifests was started from standard input"
	}
	var elsewhere []string
	for _, pod := range only(pods, has) {
		from := cmp.Or(pod.Annotations[podspec.AnnotationPath], pod.Annotations[podspec.AnnotationSource], "elsewhere")
		if from == "-" {
			from = "standard input"
		}
		elsewhere = append(elsewhere, fmt.Sprintf("pod %q was started from %s: runonce down %s", pod.Name, from, podspec.FullName(pod)))
	}
	if len(elsewhere) > 0 {
		notice += " (" + strings.Join(elsewhere, "; ") + ")"
	}
	var problems manifests.Diagnostics
	if errors.As(err, &problems) {
		return selection{err: badInput(&inputError{problems: problems, result: notice})}, nil
	}
	return selection{notice: notice}, nil
}

// downOptions are those for manifests whose pods are to be stopped, whatever flags they were run with.
func (p *program) downOptions(c *cli.Context) manifests.Options {
	o := p.inputOptions(c)
	o.RunCronJobs, o.SHA256 = true, ""
	return o
}

// namesOf returns the full names of the pods in the manifests.
func namesOf(set *manifests.Set) map[string]bool {
	names := map[string]bool{}
	for _, pod := range set.Pods {
		names[podspec.FullName(pod)] = true
	}
	for _, in := range set.Invalid {
		if in.Kind == "Pod" && in.Name != "" {
			names[cmp.Or(in.Namespace, v1.NamespaceDefault)+"/"+in.Name] = true
		}
	}
	return names
}

// isNamed says whether the argument, [NAMESPACE/]POD, names the pod.
func isNamed(arg, namespace, name string) bool { return arg == name || arg == namespace+"/"+name }

func only(pods []*v1.Pod, wanted func(*v1.Pod) bool) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return !wanted(pod) })
}

// fullNames returns the names of the pods, sorted and each once.
func fullNames(pods []*v1.Pod) []string {
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, podspec.FullName(pod))
	}
	return distinctNames(names)
}
