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

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/record"
)

// logsCommand is "logs".
type logsCommand struct {
	*program
	logOptions
	pastFlags
}

// logOptions select a log and its lines.
type logOptions struct {
	pod, namespace               string // the reference to the pod, and its namespace if that is known
	container                    string // "" for the one that kubectl chooses
	follow, previous, timestamps bool
	tail                         int // lines, or notGiven for all
	since                        time.Duration
}

func (p *program) logsCommand() *cli.Command {
	c := &logsCommand{program: p}
	return p.command(cli.Command{
		Name: "logs", Usage: "print the log of a container", ArgsUsage: "[NAMESPACE/]POD",
		Description: "Each instance of a container has its own log, even after the pod is removed and run again.\n" +
			"The logs of the last 100 removed pods are kept for 30 days, or until 'down --logs'.\n" +
			"A log is printed as is, but on a terminal without control sequences other than colors.",
		Flags: []cli.Flag{
			containerFlag(&c.container),
			boolFlag(&c.follow, "", "follow the log until the container ends", "follow", "f"),
			boolFlag(&c.previous, "", "print the log of the previous instance", "previous", "p"),
			&cli.IntFlag{Name: "tail", Destination: &c.tail, Value: notGiven, Usage: "print only the last `N` lines", DefaultText: "all"},
			&cli.DurationFlag{Name: "since", Destination: &c.since, Usage: "print only lines newer than this `DURATION`, such as 5m", DefaultText: "all"},
			boolFlag(&c.timestamps, "", "print the time of each line", "timestamps", "t"),
		},
	}, c, &c.pastFlags)
}

func (c *logsCommand) run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return usagef("logs needs exactly one POD, got %d", len(args))
	}
	c.pod, c.logOptions.namespace = args[0], c.podNamespace
	t, err := c.pastTarget(&c.pastFlags, c.engine(c.console))
	if err != nil {
		return err
	}
	defer t.close()
	err = t.printLog(ctx, c.logOptions, c.logSinks())
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// lines returns how many of the last lines are wanted, nil for all.
func (o *logOptions) lines() *int {
	if o.tail == notGiven {
		return nil
	}
	return &o.tail
}

// printLog prints a log of this machine. It opens the engine only to follow it.
func (t *nodeTarget) printLog(ctx context.Context, o logOptions, to logs.Sinks) error {
	path, pod, err := t.findLog(o)
	if err != nil {
		return err
	}
	lines := logs.Options{Tail: o.lines(), Timestamps: o.timestamps}
	if o.since > 0 {
		lines.Since = time.Now().Add(-o.since)
	}
	if !o.follow {
		return logs.Read(ctx, path, to, lines)
	}
	if err := t.connect(ctx); err != nil {
		t.log.Warn("could not watch the container; following its log until interrupted", "error", err)
		return logs.Follow(ctx, path, to, lines, nil)
	}
	owner := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: types.UID(pod.UID)}}
	return t.pods.FollowLog(ctx, owner, path, to, lines)
}

// findLog returns the path of the log that is asked for, and its pod.
func (t *nodeTarget) findLog(o logOptions) (string, logs.Pod, error) {
	store := logs.Store{Dir: t.options.LogDir, Root: t.options.Root}
	found, err := findPod(store, record.Open(t.options.Root, t.options.State), o)
	if err != nil {
		return "", found.Pod, err
	}
	container, err := t.pickContainer(o, found, store.Mark(found.Path))
	if err != nil {
		return "", found.Pod, err
	}
	path, err := logs.Newest(filepath.Join(found.Path, container), o.previous)
	if errors.Is(err, fs.ErrNotExist) {
		err = usagef("pod %q has no log of container %q", o.pod, container)
		if o.previous {
			err = usagef("--previous: pod %q has no log of an earlier instance of container %q", o.pod, container)
		}
	}
	return path, found.Pod, err
}

// findPod returns the logs of the named pod: of the one that exists, if there were several of
// that name, else of the one that was last started or removed.
func findPod(store logs.Store, records *record.Store, o logOptions) (logs.Found, error) {
	all, err := store.List()
	if err != nil {
		return logs.Found{}, err
	}
	all = slices.DeleteFunc(all, func(f logs.Found) bool {
		return o.namespace != "" && f.Namespace != o.namespace || isNamed(o.pod, podOfLogs(f)) && !f.HasLogs()
	})
	all, err = resolve(o.pod, all, podOfLogs, usagef("no logs of pod %q in %s; see %q", o.pod, store.Dir, "runonce ps"))
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

// pickContainer returns the container that is asked for, or the one that kubectl chooses: that of
// the pod's annotation, or its first one, which it says on standard error.
func (c *console) pickContainer(o logOptions, found logs.Found, mark logs.Mark) (string, error) {
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
		return "", usagef("no container of pod %q has been started", o.pod)
	}
	if len(mark.Containers) == 0 {
		mark = logs.Mark{Containers: names} // not a pod of this root
	}
	chosen := c.chooseContainer(o.container, mark)
	if !slices.Contains(names, chosen) {
		return "", usagef("pod %q has no logs of container %q; it has: %s", o.pod, chosen, strings.Join(names, ", "))
	}
	return chosen, nil
}

// chooseContainer returns the container that is asked for, else the one that kubectl chooses.
func (c *console) chooseContainer(wanted string, mark logs.Mark) string {
	chosen := cmp.Or(wanted, mark.Choose(), mark.Containers[0])
	if others := mark.Names(); wanted == "" && mark.Choose() == "" && len(others) > 1 {
		c.println(fmt.Sprintf("Defaulted container %q out of: %s", chosen, strings.Join(others, ", ")))
	}
	return chosen
}

// containerOf is chooseContainer among the containers of a pod.
func (c *console) containerOf(pod *v1.Pod, wanted string) (string, error) {
	mark := runtime.LogMark(pod)
	if wanted != "" && podspec.Container(pod, wanted) == nil {
		return "", usagef("pod %q has no container %q; it has: %s", podspec.FullName(pod), wanted, strings.Join(mark.Names(), ", "))
	}
	return c.chooseContainer(wanted, mark), nil
}

// maxTail limits the last lines of one container in a report, in bytes.
const maxTail = 16 << 10

// podLogs are the logs of the pods on this machine, for results.
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
