package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/record"
)

func (p *program) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the log of a container",
		ArgsUsage: "[NAMESPACE/]POD", Action: p.logs,
		Description: "Each instance of a container has a log of its own, also when the pod is removed and run again.\n" +
			"Those of the 100 pods that were removed last are kept for 30 days, or until 'down --logs'.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "container", Aliases: []string{"c"}, Usage: "`NAME` of the container", DefaultText: "the one that kubectl chooses"},
			boolFlag("", "follow the log until the container ends", "follow", "f"),
			boolFlag("", "print the log of the instance before the newest one", "previous"),
			&cli.IntFlag{Name: "tail", Usage: "print only the last `N` lines", DefaultText: "all"},
			&cli.DurationFlag{Name: "since", Usage: "print only lines newer than this `DURATION`, such as 5m", DefaultText: "all"},
			boolFlag("", "print the time of each line", "timestamps"),
		}, engineFlags(), clusterFlags()),
	}
}

func (p *program) logs(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return usagef("logs needs exactly one POD, got %d", c.Args().Len())
	}
	if p.cluster != nil {
		return p.logsCluster(c)
	}
	path, pod, err := p.findLog(c)
	if err != nil {
		return err
	}
	o := logs.Options{Tail: tailOf(c), Timestamps: c.Bool("timestamps")}
	if since := c.Duration("since"); since > 0 {
		o.Since = time.Now().Add(-since)
	}
	sinks := logs.Sinks{Stdout: p.io.Stdout, Stderr: p.io.Stderr}
	if c.Bool("follow") {
		err = p.follow(c, pod, path, sinks, o)
	} else {
		err = logs.Read(c.Context, path, sinks, o)
	}
	if cause := context.Cause(c.Context); cause != nil {
		return cause
	}
	return err
}

// tailOf returns how many of the last lines are wanted, nil for all.
func tailOf(c *cli.Context) *int {
	if !c.IsSet("tail") {
		return nil
	}
	return new(c.Int("tail"))
}

// findLog returns the path of the log that the arguments ask for, and its pod.
func (p *program) findLog(c *cli.Context) (string, logs.Pod, error) {
	o, err := p.engineOptions(c)
	if err != nil {
		return "", logs.Pod{}, err
	}
	store := logs.Store{Dir: o.LogDir, Root: o.Root}
	found, err := p.findPod(store, record.Open(o.Root, o.State), c.Args().First())
	if err != nil {
		return "", found.Pod, err
	}
	container, err := p.pickContainer(c, found, store.Mark(found.Path))
	if err != nil {
		return "", found.Pod, err
	}
	path, err := logs.Newest(filepath.Join(found.Path, container), c.Bool("previous"))
	if errors.Is(err, fs.ErrNotExist) {
		err = usagef("pod %q has no log of container %q", c.Args().First(), container)
		if c.Bool("previous") {
			err = usagef("--previous: pod %q has no log of an earlier instance of container %q", c.Args().First(), container)
		}
	}
	return path, found.Pod, err
}

// findPod returns the logs of the named pod: of the one that exists, if there were several of
// that name, else of the one that was last started or removed.
func (p *program) findPod(store logs.Store, records *record.Store, ref string) (logs.Found, error) {
	all, err := store.List()
	if err != nil {
		return logs.Found{}, err
	}
	all = slices.DeleteFunc(all, func(f logs.Found) bool { return !isNamed(ref, f.Namespace, f.Name) })
	if len(all) == 0 {
		return logs.Found{}, usagef("no logs of pod %q in %s; see %q", ref, store.Dir, "runonce ps")
	}
	started := func(f logs.Found) bool {
		r, err := records.Load(types.UID(f.UID))
		return err == nil && !r.Started.IsZero()
	}
	best := all[0]
	for _, f := range all[1:] {
		if f.Namespace != best.Namespace {
			return logs.Found{}, usagef("pod %q is in several namespaces, use NAMESPACE/%s", ref, ref)
		}
		if a, b := started(f), started(best); a && !b || a == b && f.Changed.After(best.Changed) {
			best = f
		}
	}
	return best, nil
}

// pickContainer returns the container of --container, or the one that kubectl chooses: that of
// the pod's annotation, or its first one, which it says on standard error.
func (p *program) pickContainer(c *cli.Context, found logs.Found, mark logs.Mark) (string, error) {
	pod := c.Args().First()
	entries, err := os.ReadDir(found.Path)
	if err != nil {
		return "", fmt.Errorf("finding logs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return "", usagef("no container of pod %q has been started", pod)
	}
	if len(mark.Containers) == 0 {
		mark = logs.Mark{Containers: names} // not a pod of this root
	}
	return p.chooseContainer(c, mark, names)
}

// chooseContainer is pickContainer among the containers that have logs.
func (p *program) chooseContainer(c *cli.Context, mark logs.Mark, names []string) (string, error) {
	pod, name := c.Args().First(), c.String("container")
	chosen := cmp.Or(name, mark.Choose(), mark.Containers[0])
	if !slices.Contains(names, chosen) {
		return "", usagef("pod %q has no logs of container %q; it has: %s", pod, chosen, strings.Join(names, ", "))
	}
	if others := mark.Names(); name == "" && mark.Choose() == "" && len(others) > 1 {
		p.println(fmt.Sprintf("Defaulted container %q out of: %s", chosen, strings.Join(others, ", ")))
	}
	return chosen, nil
}

// follow follows a log until its instance ends, if an engine can tell, or until interrupted.
func (p *program) follow(c *cli.Context, pod logs.Pod, path string, sinks logs.Sinks, o logs.Options) error {
	s, err := p.connect(c)
	if err != nil {
		p.log.Warn("cannot watch the container, following its log until interrupted", "error", err)
		return logs.Follow(c.Context, path, sinks, o, nil)
	}
	defer s.close()
	owner := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}}
	return s.pods.FollowLog(c.Context, owner, path, sinks, o)
}

// maxTail limits the last lines of one container in a report, in bytes.
const maxTail = 16 << 10

// podLogs are the logs of a run's pods, for its results.
type podLogs struct{ pods *runtime.Pods }

// Path returns the log file of an instance of a container.
func (l podLogs) Path(pod *v1.Pod, _, id string) string {
	return l.pods.LogPath(pod, id)
}

// Tail returns the last lines of a log; one that does not exist has none.
func (podLogs) Tail(path string, n int) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	lines, err := logs.Tail(path, n, maxTail)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lines, err
}
