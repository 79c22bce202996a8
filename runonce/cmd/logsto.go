package cmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/cluster"
	"github.com/runonce/runonce/runtime/logs"
)

// copyTimeout limits the reading of the logs of a pod on a cluster.
const copyTimeout = 30 * time.Second

// logCopies writes the logs of a run to the directory of --logs-to, if there is one.
type logCopies struct {
	dir  string
	lock *os.File
	err  error

	mu      sync.Mutex
	started map[types.UID][]instance // on this machine, the oldest first
}

// instance is one instance of a container.
type instance struct {
	container string
	path      string // on this machine
	copy      func(ctx context.Context, w io.Writer) error
}

// open makes the directory, "" for none, and keeps others from using it until it is
// closed. It must be empty: what is in it could be taken for logs of this run.
func (l *logCopies) open(dir string) (err error) {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, process.FileMode(0o755)); err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	mine, err := flock.Lock(lock)
	entries, readErr := os.ReadDir(dir)
	if err = errors.Join(err, readErr); err == nil {
		switch {
		case !mine:
			err = fmt.Errorf("another run is writing its logs to %s", dir)
		case len(entries) > 0:
			err = fmt.Errorf("%s is not empty: the logs of a run must not mix with other files", dir)
		}
	}
	if err != nil {
		_ = lock.Close()
		return err
	}
	l.dir, l.lock, l.started = dir, lock, map[types.UID][]instance{}
	return nil
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
func (c *runCommand) copyLogs(ctx context.Context, results []runonce.Result, t target) {
	if c.copies.wanted() {
		defer c.display.Wait("writing the logs")()
		c.copies.write(context.WithoutCancel(ctx), results, t.instances)
	}
}

// created notes the log of an instance of a container on this machine. That of one which could not
// be started is used again.
func (l *logCopies) created(pod *v1.Pod, container, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.started[pod.UID]
	if slices.ContainsFunc(known, func(in instance) bool { return in.path == path }) {
		return
	}
	l.started[pod.UID] = append(known, instance{container, path, func(ctx context.Context, w io.Writer) error {
		return logs.Read(ctx, path, logs.Sinks{Stdout: w, Stderr: w}, logs.Options{})
	}})
}

// instancesOf returns the instances of a pod that this run has started on this machine. Those that could not be
// started, or are too old, have no log.
func (l *logCopies) instancesOf(pod types.UID) []instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.started[pod]), func(in instance) bool {
		_, err := os.Stat(in.path)
		return errors.Is(err, fs.ErrNotExist)
	})
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
		name := logName(pod, in.container)
		if i != last[in.container] {
			number[in.container]++
			name += fmt.Sprintf(".%d", number[in.container])
		}
		errs = append(errs, in.copyTo(ctx, filepath.Join(l.dir, name+".log")))
	}
	return errors.Join(errs...)
}

// maxLogName leaves room for a number, and for what the name of a file has while it is written.
const maxLogName = 200

// logName is how the name of the file begins with the log of a container: NAMESPACE_POD_CONTAINER.
// When that is too long for a file, the pod's name is cut and has a hash.
func logName(pod *v1.Pod, container string) string {
	name := pod.Name
	if over := len(pod.Namespace) + len(name) + len(container) + len("__") - maxLogName; over > 0 {
		sum := sha256.Sum256([]byte(name))
		hash := "-" + hex.EncodeToString(sum[:4])
		name = name[:len(name)-over-len(hash)] + hash
	}
	return pod.Namespace + "_" + name + "_" + container
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
