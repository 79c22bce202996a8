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
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/logs"
)

func (p *program) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the log of a container",
		ArgsUsage: "[NAMESPACE/]POD", Action: p.withLogger(p.logs),
		Description: "The logs of removed pods are available as well.",
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "container", Aliases: []string{"c"}, Usage: "`NAME` of the container", DefaultText: "the first one of the pod"},
			boolFlag("", "follow the log until the pod ends", "follow", "f"),
			boolFlag("", "print the log of the instance before the last restart", "previous"),
			&cli.IntFlag{Name: "tail", Usage: "print only the last `N` lines", DefaultText: "all"},
			&cli.DurationFlag{Name: "since", Usage: "print only lines newer than this `DURATION`, such as 5m", DefaultText: "all"},
			boolFlag("", "print the time of each line", "timestamps"),
		}, engineFlags()),
	}
}

func (p *program) logs(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return usagef("logs needs exactly one POD, got %d", c.Args().Len())
	}
	if c.Int("tail") < 0 {
		return usagef("--tail %d: must not be negative", c.Int("tail"))
	}
	dir, err := logDir(c.String("log-dir")).find(c.Args().First())
	if err != nil {
		return err
	}
	container, err := p.pickContainer(c, dir)
	if err != nil {
		return err
	}
	last, err := logs.LastAttempt(filepath.Join(dir, container))
	if err != nil {
		return err
	}
	if c.Bool("previous") {
		if last == 0 {
			return usagef("--previous: container %q of pod %q has not been restarted", container, c.Args().First())
		}
		last--
	}
	o := logs.Options{Tail: c.Int("tail"), Timestamps: c.Bool("timestamps")}
	if since := c.Duration("since"); since > 0 {
		o.Since = time.Now().Add(-since)
	}
	path := filepath.Join(dir, container, fmt.Sprintf("%d.log", last))
	sinks := logs.Sinks{Stdout: p.io.Stdout, Stderr: p.io.Stderr}
	if c.Bool("follow") {
		err = p.follow(c, path, sinks, o)
	} else {
		err = logs.Read(c.Context, path, sinks, o)
	}
	if cause := context.Cause(c.Context); cause != nil {
		return cause
	}
	return err
}

// follow follows a log until the pod ends, if an engine can tell, or until interrupted.
func (p *program) follow(c *cli.Context, path string, sinks logs.Sinks, o logs.Options) error {
	s, pod, err := p.podOf(c, path)
	if err != nil {
		p.log.Info("cannot watch the pod, following until interrupted", "error", err)
		return logs.Follow(c.Context, path, sinks, o, nil)
	}
	defer s.close()
	ended := make(chan struct{})
	var watch sync.WaitGroup
	ctx, cancel := context.WithCancel(c.Context)
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		if err := awaitEnd(ctx, s.pods, pod); err != nil {
			p.log.Info("cannot watch the pod, following until interrupted", "error", err)
			return
		}
		close(ended)
	})
	return logs.Follow(ctx, path, sinks, o, ended)
}

// awaitEnd waits until the pod has ended or is removed.
func awaitEnd(ctx context.Context, pods runonce.Runtime, pod *v1.Pod) error {
	changes, err := pods.Changes(ctx, pod)
	if err != nil {
		return err
	}
	for {
		st, err := pods.Status(ctx, pod)
		if err != nil {
			return err
		}
		if st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed || len(st.ContainerStatuses) == 0 {
			return nil
		}
		if _, open := <-changes; !open {
			return context.Cause(ctx)
		}
	}
}

// podOf asks the engine for the pod whose logs are at path.
func (p *program) podOf(c *cli.Context, path string) (*session, *v1.Pod, error) {
	s, err := p.connect(c)
	if err != nil {
		return nil, nil, err
	}
	pods, err := s.list(c.Context)
	if err != nil {
		s.close()
		return nil, nil, err
	}
	for _, pod := range pods {
		if strings.Contains(path, "_"+string(pod.UID)) {
			return s, pod, nil
		}
	}
	s.close()
	return nil, nil, errors.New("the pod has been removed")
}

// pickContainer returns the container of --container, the only one, or the pod's first.
func (p *program) pickContainer(c *cli.Context, dir string) (string, error) {
	pod, name := c.Args().First(), c.String("container")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("finding logs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	switch {
	case name != "" && !slices.Contains(names, name):
		return "", usagef("pod %q has no logs of container %q; it has: %s", pod, name, strings.Join(names, ", "))
	case name != "":
		return name, nil
	case len(names) == 0:
		return "", usagef("no container of pod %q has been started", pod)
	case len(names) == 1:
		return names[0], nil
	}
	s, known, err := p.podOf(c, dir)
	if err != nil {
		p.log.Info("cannot get the first container", "error", err)
		return "", usagef("pod %q has several containers, choose one with -c: %s", pod, strings.Join(names, ", "))
	}
	s.close()
	return known.Spec.Containers[0].Name, nil
}

// maxTail limits the last lines of one container in a report, in bytes.
const maxTail = 16 << 10

// logDir is the directory of all logs.
type logDir string

// Path returns the log file of one instance of a container.
func (l logDir) Path(pod *v1.Pod, container string, restart int) string {
	return logs.Path(string(l), logs.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}, container, restart)
}

// Tail returns the last lines of one instance of a container; one without a log has none.
func (l logDir) Tail(pod *v1.Pod, container string, restart, n int) ([]string, error) {
	lines, err := logs.Tail(l.Path(pod, container, restart), n, maxTail)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lines, err
}

// find returns the directory of the pod's logs, the newest if there were several pods of that
// name.
func (l logDir) find(ref string) (string, error) {
	namespace, name, ok := strings.Cut(ref, "/")
	if !ok {
		namespace, name = "", ref
	}
	entries, err := os.ReadDir(string(l))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("finding logs: %w", err)
	}
	newest, found, namespaces := time.Time{}, "", map[string]bool{}
	for _, e := range entries {
		// NAMESPACE_NAME_UID, none of which can contain an underscore.
		parts := strings.Split(e.Name(), "_")
		if len(parts) != 3 || parts[1] != name || (namespace != "" && parts[0] != namespace) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it has just been removed
		}
		namespaces[parts[0]] = true
		if found == "" || info.ModTime().After(newest) {
			newest, found = info.ModTime(), filepath.Join(string(l), e.Name())
		}
	}
	switch {
	case found == "":
		return "", usagef("no logs of pod %q in %s; see %q", ref, l, "runonce ps")
	case len(namespaces) > 1:
		return "", usagef("pod %q is in several namespaces, use NAMESPACE/%s", name, name)
	}
	return found, nil
}
