package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/cluster"
	"github.com/runonce/runonce/runtime/logs"
)

// copyTimeout limits the reading of the logs of a pod on a cluster.
const copyTimeout = 30 * time.Second

// logCopies writes the logs of a run to the directory of --logs-to, if there is one.
type logCopies struct {
	dir       string
	lock      *os.File
	mu        sync.Mutex
	instances map[types.UID][]instance // on this machine, the oldest first
	err       error
}

// instance is one instance of a container.
type instance struct {
	container string
	path      string // on this machine
	copy      func(ctx context.Context, w io.Writer) error
}

// openLogCopies makes the directory, "" for none, and keeps others from using it until it is
// closed. It must be empty: what is in it could be taken for logs of this run.
func openLogCopies(dir string) (l *logCopies, err error) {
	if dir == "" {
		return &logCopies{}, nil
	}
	if err := os.MkdirAll(dir, process.FileMode(0o755)); err != nil {
		return nil, err
	}
	l = &logCopies{dir: dir, instances: map[types.UID][]instance{}}
	if l.lock, err = os.Open(dir); err != nil {
		return nil, err
	}
	mine, err := flock.Lock(l.lock)
	entries, readErr := os.ReadDir(dir)
	if err = errors.Join(err, readErr); err == nil {
		switch {
		case !mine:
			err = fmt.Errorf("another run writes its logs to %s", dir)
		case len(entries) > 0:
			err = fmt.Errorf("%s is not empty: the logs of a run must not mix with other files", dir)
		}
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// close lets others use the directory.
func (l *logCopies) close() {
	if l.wanted() {
		_ = l.lock.Close()
	}
}

// wanted says whether --logs-to is given.
func (l *logCopies) wanted() bool { return l.dir != "" }

// copyLogs writes the logs of the run, before it removes its pods.
func (p *program) copyLogs(ctx context.Context, results []runonce.Result, l *launch) {
	if p.copies.wanted() {
		defer p.display.Wait("writing the logs")()
		p.copies.write(context.WithoutCancel(ctx), results, l.instances)
	}
}

// created notes the log of an instance of a container on this machine. That of one which could not
// be started is used again.
func (l *logCopies) created(pod *v1.Pod, container, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.instances[pod.UID]
	if slices.ContainsFunc(known, func(in instance) bool { return in.path == path }) {
		return
	}
	l.instances[pod.UID] = append(known, instance{container, path, func(ctx context.Context, w io.Writer) error {
		return logs.Read(ctx, path, logs.Sinks{Stdout: w, Stderr: w}, logs.Options{})
	}})
}

// ofNode returns the instances that this run has started on this machine. Those that could not be
// started, or are too old, have no log.
func (l *logCopies) ofNode(r *runonce.Result) []instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.instances[r.Pod.UID]), func(in instance) bool {
		_, err := os.Stat(in.path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// ofCluster returns the function for a cluster, which has the newest instance of each container and
// the one before.
func ofCluster(pods *cluster.Pods, start time.Time) func(r *runonce.Result) []instance {
	return func(r *runonce.Result) []instance {
		var all []instance
		add := func(name string, started time.Time, previous bool) {
			if r.Existed && started.Before(start.Truncate(time.Second)) {
				return // by an earlier run
			}
			all = append(all, instance{container: name, copy: func(ctx context.Context, w io.Writer) error {
				return pods.Logs(ctx, r.Pod.Namespace, r.Pod.Name, cluster.LogOptions{Container: name, Previous: previous}, w)
			}})
		}
		for _, cs := range podspec.Statuses(r.Status) {
			if last := cs.LastTerminationState.Terminated; last != nil {
				add(cs.Name, last.StartedAt.Time, true)
			}
			switch state := cs.State; {
			case state.Running != nil:
				add(cs.Name, state.Running.StartedAt.Time, false)
			case state.Terminated != nil:
				add(cs.Name, state.Terminated.StartedAt.Time, false)
			}
		}
		return all
	}
}

// write writes the logs of all pods, at the same time.
func (l *logCopies) write(ctx context.Context, results []runonce.Result, of func(*runonce.Result) []instance) {
	errs := inParallel(results, -1, func(_ int, r runonce.Result) error {
		ctx, cancel := context.WithTimeout(ctx, copyTimeout)
		defer cancel()
		return l.writePod(ctx, r.Pod, of(&r))
	})
	if l.err = errors.Join(errs...); l.err != nil {
		l.err = fmt.Errorf("--logs-to: %w", l.err)
	}
}

// writePod writes the logs of a pod: for the newest instance of a container NAMESPACE_POD_CONTAINER.log,
// and for those before it the same with their numbers, from 1.
func (l *logCopies) writePod(ctx context.Context, pod *v1.Pod, all []instance) error {
	last := map[string]int{}
	for i, in := range all {
		last[in.container] = i
	}
	number := map[string]int{}
	errs := make([]error, 0, len(all))
	for i, in := range all {
		name := pod.Namespace + "_" + pod.Name + "_" + in.container
		if i != last[in.container] {
			number[in.container]++
			name += fmt.Sprintf(".%d", number[in.container])
		}
		errs = append(errs, in.copyTo(ctx, filepath.Join(l.dir, name+".log")))
	}
	return errors.Join(errs...)
}

// copyTo writes the log to a file, which appears when it is complete.
func (in instance) copyTo(ctx context.Context, path string) error {
	f, err := atomicfile.Create(path, process.FileMode(0o644))
	if err != nil {
		return err
	}
	switch err := in.copy(ctx, f); {
	case errors.Is(err, cluster.ErrLogRemoved): // too old
		return f.Abort()
	case err != nil:
		return errors.Join(err, f.Abort())
	}
	return f.Commit()
}
