package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/cluster"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/record"
)

// logSources returns the logs on this machine. It opens the engine only to follow them.
func (t *nodeTarget) logSources(ctx context.Context, o logOptions) ([]logSource, error) {
	if t.records == nil {
		t.records = record.Open(t.options.Root, t.options.State)
	}
	pods, err := t.loggedPods(o)
	if err != nil {
		return nil, err
	}
	var sources []logSource
	for _, found := range pods {
		paths, err := t.logPaths(o, found)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			sources = append(sources, logSource{found.Name, filepath.Base(filepath.Dir(path)), func(ctx context.Context, to logs.Sinks) error {
				return t.copyLog(ctx, path, found.Pod, o, to)
			}})
		}
	}
	if len(sources) == 0 {
		return nil, o.noSource()
	}
	if !o.follow {
		return sources, nil
	}
	if err := t.connect(ctx); err != nil {
		t.log.Warn("could not watch the container; following its log until interrupted", "error", err)
	}
	return sources, nil
}

// copyLog copies a log, until the container has ended if it is followed and that can be known.
func (t *nodeTarget) copyLog(ctx context.Context, path string, of logs.Pod, o logOptions, to logs.Sinks) error {
	lines := logs.Options{Tail: o.lines(), Since: o.from(time.Now()), Timestamps: o.timestamps && to.Lines == nil}
	switch {
	case !o.follow:
		return logs.Read(ctx, path, to, lines)
	case t.pods == nil:
		return logs.Follow(ctx, path, to, lines, nil)
	}
	owner := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name, UID: types.UID(of.UID)}}
	return t.pods.FollowLog(ctx, owner, runtime.FollowedLog{Path: path}, to, lines)
}

// loggedPods returns the logs of the pods that are named, each once, or of those that exist and are selected.
func (t *nodeTarget) loggedPods(o logOptions) (all []logs.Found, err error) {
	store := logs.Store{Dir: t.options.LogDir, Root: t.options.Root}
	for _, ref := range o.refs {
		found, err := findPod(store, t.records, ref, o.within)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(f logs.Found) bool { return f.Pod == found.Pod }) {
			all = append(all, found)
		}
	}
	if len(o.refs) > 0 {
		return all, nil
	}
	pods, err := t.known()
	if err == nil {
		pods, err = o.selected(pods)
	}
	for _, pod := range pods {
		of := logs.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
		if found := (logs.Found{Pod: of, Path: of.Dir(store.Dir)}); found.HasLogs() {
			all = append(all, found)
		}
	}
	return all, err
}

// findPod returns the logs of the named pod: of the one that exists, if there were several of
// that name, else of the one that was last started or removed.
func findPod(store logs.Store, records *record.Store, ref, namespace string) (logs.Found, error) {
	all, err := store.List()
	if err != nil {
		return logs.Found{}, err
	}
	all = slices.DeleteFunc(all, func(f logs.Found) bool {
		return namespace != "" && f.Namespace != namespace || isNamed(ref, podOfLogs(f)) && !f.HasLogs()
	})
	all, err = resolve(ref, all, podOfLogs, usagef("no logs of pod %q in %s; see %q", ref, store.Dir, "runonce ps"))
	if err != nil {
		return logs.Found{}, err
	}
	started := func(f logs.Found) bool {
		r, err := records.Load(types.UID(f.UID))
		return err == nil && !r.Started.IsZero()
	}
	best := all[0]
	for _, f := range all[1:] {
		if a, b := started(f), started(best); a && !b || a == b && f.Changed.After(best.Changed) {
			best = f
		}
	}
	return best, nil
}

// logPaths returns the logs that are wanted of a pod. Containers that have none are left out, unless it is the one that
// is wanted of a pod that was named.
func (t *nodeTarget) logPaths(o logOptions, found logs.Found) (paths []string, err error) {
	mark := logs.Store{Dir: t.options.LogDir, Root: t.options.Root}.Mark(found.Path)
	names, err := loggedContainers(found, mark)
	if err != nil {
		return nil, err
	}
	lenient := o.allContainers || len(o.refs) == 0
	if !o.allContainers {
		chosen, err := t.pickContainer(o, found, mark, names)
		if err != nil && lenient {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		names = []string{chosen}
	}
	for _, name := range names {
		path, err := logs.Newest(filepath.Join(found.Path, name), o.previous)
		switch {
		case err == nil:
			paths = append(paths, path)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case !lenient && o.previous:
			return nil, usagef("--previous: pod %q has no log of an earlier instance of container %q", found.Name, name)
		case !lenient:
			return nil, usagef("pod %q has no log of container %q", found.Name, name)
		}
	}
	return paths, nil
}

// loggedContainers returns the containers of which there are logs, in the order of the pod, init containers first, and
// those that were added to the pod last.
func loggedContainers(found logs.Found, mark logs.Mark) (names []string, err error) {
	entries, err := os.ReadDir(found.Path)
	if err != nil {
		return nil, fmt.Errorf("finding logs: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	order := slices.Concat(mark.Init, mark.Containers)
	at := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(names, func(a, b string) int { return at(a) - at(b) })
	return names, nil
}

// pickContainer returns the container that is asked for, or the one that kubectl chooses: that of
// the pod's annotation, or its first one, which it says on standard error unless there are several pods.
func (c *console) pickContainer(o logOptions, found logs.Found, mark logs.Mark, names []string) (string, error) {
	if len(names) == 0 {
		return "", usagef("no container of pod %q has been started", found.Name)
	}
	if len(mark.Containers) == 0 {
		slices.Sort(names)
		mark = logs.Mark{Containers: names} // not a pod of this root
	}
	chosen := o.chooseContainer(c, mark)
	if !slices.Contains(names, chosen) {
		slices.Sort(names)
		return "", usagef("pod %q has no logs of container %q; it has: %s", found.Name, chosen, strings.Join(names, ", "))
	}
	return chosen, nil
}

// choose returns the container that is wanted of a pod.
func (o *logOptions) chooseContainer(c *console, mark logs.Mark) string {
	if len(o.refs) == 1 {
		return c.chooseContainer(o.container, mark)
	}
	return mark.Chosen(o.container)
}

// logSources returns the logs of pods of the cluster.
func (t *clusterTarget) logSources(ctx context.Context, o logOptions) ([]logSource, error) {
	all, err := t.list(ctx, func() []string { return o.namespaces(o.refs) })
	if err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	if len(o.refs) > 0 {
		pods, err = namedPods(o.refs, all, notOnCluster)
	} else {
		pods, err = o.selected(all)
	}
	if err != nil {
		return nil, err
	}
	var sources []logSource
	for _, pod := range pods {
		names, err := t.logNames(o, pod)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			sources = append(sources, logSource{pod.Name, name, func(ctx context.Context, to logs.Sinks) error {
				return t.copyLog(ctx, pod, name, o, to)
			}})
		}
	}
	if len(sources) == 0 {
		return nil, o.noSource()
	}
	return sources, nil
}

// logNames returns the containers of a pod whose logs are wanted. Those that never ran are left out, unless it is the
// one that is wanted of a pod that was named.
func (t *clusterTarget) logNames(o logOptions, pod *v1.Pod) (names []string, err error) {
	mark := runtime.LogMark(pod)
	switch {
	case o.allContainers:
		names = slices.Concat(mark.Init, mark.Containers, mark.Ephemeral)
	case len(o.refs) == 1:
		name, err := t.containerOf(pod, o.container)
		return []string{name}, err
	default:
		names = []string{mark.Chosen(o.container)}
		if podspec.Container(pod, names[0]) == nil && len(o.refs) > 0 {
			return nil, usagef("pod %q has no container %q", podspec.FullName(pod), o.container)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(podspec.AllStatuses(pod.Status), func(cs v1.ContainerStatus) bool {
			if o.previous {
				return cs.Name == name && cs.LastTerminationState.Terminated != nil
			}
			return cs.Name == name && cs.ContainerID != ""
		})
	}), nil
}

// copyLog copies a log, whose lines need their times.
func (t *clusterTarget) copyLog(ctx context.Context, pod *v1.Pod, container string, o logOptions, to logs.Sinks) error {
	lo := cluster.LogOptions{
		Container: container, Previous: o.previous, Follow: o.follow, Tail: o.lines(), Since: o.since, SinceTime: o.sinceTime, Timestamps: o.timestamps || to.Lines != nil,
	}
	if to.Lines == nil {
		return t.pods.Logs(ctx, pod.Namespace, pod.Name, lo, to.Stdout)
	}
	w, flush := logs.LineWriter(true, to.Lines)
	return errors.Join(t.pods.Logs(ctx, pod.Namespace, pod.Name, lo, w), flush())
}
