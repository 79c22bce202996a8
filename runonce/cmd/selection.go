package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
)

// selector finds the pods that the arguments of down mean.
type selector struct {
	c *downCommand
	t target
}

// selection is what one argument stands for.
type selection struct {
	pods   []*v1.Pod
	notice string // why there are none
	err    error  // for the end: the manifests have errors and there are no pods
}

// choose returns those of the pods that the arguments mean. The caller calls conclude once they
// are stopped: one bad file must not keep the others running.
func (s selector) choose(ctx context.Context, args []string, pods []*v1.Pod) (wanted []*v1.Pod, conclude func() error, err error) {
	if s.c.all {
		if len(pods) == 0 && !s.c.quiet {
			s.c.notice("there are no pods of earlier runs")
		}
		return pods, func() error { return nil }, nil
	}
	var selected []selection
	for _, arg := range args {
		one, err := s.selectBy(ctx, arg, pods)
		if err != nil {
			return nil, nil, err
		}
		selected, wanted = append(selected, one), append(wanted, one.pods...)
	}
	wanted = only(pods, func(pod *v1.Pod) bool { return len(args) == 0 || slices.Contains(wanted, pod) })
	if s.c.given() && len(wanted) > 0 {
		if wanted, err = s.c.choiceFlags.choose(wanted); err != nil {
			return nil, nil, err
		}
		if len(wanted) == 0 {
			s.c.notice(s.c.choiceFlags.String() + " selects no pod")
		}
	}
	return wanted, func() (err error) {
		for _, one := range selected {
			s.c.notice(one.notice)
			err = s.c.afterError(err, one.err)
		}
		return err
	}, nil
}

// selectBy returns what an argument stands for: the pods that came from this path, else those of
// this name. An existing path is never a name.
func (s selector) selectBy(ctx context.Context, arg string, pods []*v1.Pod) (selection, error) {
	origin := manifests.Origin(arg)
	from := only(pods, func(pod *v1.Pod) bool { return podspec.CameFrom(pod, origin) })
	if origin == "-" {
		return s.selectByManifests(ctx, arg, from, pods)
	}
	if len(from) > 0 {
		return selection{pods: from}, nil
	}
	if isPath(arg) {
		return s.selectByManifests(ctx, arg, nil, pods)
	}
	named, err := resolve(arg, pods, podspec.NameOf, usagef("%q is neither a path nor a pod that runs here; see %q", arg, "runonce ps"))
	return selection{pods: named}, err
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
func (s selector) selectByManifests(ctx context.Context, arg string, candidates, pods []*v1.Pod) (selection, error) {
	names, err := s.namesIn(ctx, arg)
	if cause := context.Cause(ctx); cause != nil {
		return selection{}, cause
	}
	has := func(pod *v1.Pod) bool { return names[podspec.FullName(pod)] }
	if found := only(candidates, has); len(found) > 0 {
		return selection{pods: found}, nil
	}
	notice := "no pod was started from " + manifests.Shown(arg)
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

// namesIn returns the full names of the pods in the manifests at a path, whatever flags they were run with. It
// returns those that can be read also with an error.
func (s selector) namesIn(ctx context.Context, path string) (map[string]bool, error) {
	o, err := s.c.input(s.c.console)
	if err != nil {
		return nil, err
	}
	o.Namespace, o.RunCronJobs, o.SHA256 = s.c.podNamespace, true, ""
	s.t.input(&o)
	set, err := manifests.ReadPaths(ctx, []string{path}, o)
	names := map[string]bool{}
	for _, pod := range set.Pods {
		names[podspec.FullName(pod)] = true
	}
	for _, in := range set.Invalid {
		if in.Kind == "Pod" && in.Name != "" {
			names[cmp.Or(in.Namespace, o.Namespace, v1.NamespaceDefault)+"/"+in.Name] = true
		}
	}
	return names, err
}

// namespaces returns the namespaces of what the arguments name.
func (s selector) namespaces(ctx context.Context, args []string) []string {
	var all []string
	for _, arg := range args {
		if !isPath(arg) {
			all = append(all, arg)
			continue
		}
		names, _ := s.namesIn(ctx, arg) // an error is for selectBy
		all = slices.AppendSeq(all, maps.Keys(names))
	}
	return s.c.choiceFlags.namespaces(all)
}
