package cmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/lastrun"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/image"
	"github.com/runonce/runonce/runtime/record"
)

var (
	_ target = (*nodeTarget)(nil)

	_ runonce.Annotator  = (*runtime.Pods)(nil)
	_ runonce.Concluder  = (*runtime.Pods)(nil)
	_ runonce.Digester   = (*runtime.Pods)(nil)
	_ runonce.Limiter    = (*runtime.Pods)(nil)
	_ runonce.Puller     = (*runtime.Pods)(nil)
	_ runonce.Recorder   = (*runtime.Pods)(nil)
	_ runonce.Prefetcher = (*runtime.Pods)(nil)
	_ runonce.Publisher  = (*runtime.Pods)(nil)
	_ runonce.Resetter   = (*runtime.Pods)(nil)
)

// nodeTarget is this machine, with a container engine.
type nodeTarget struct {
	*console
	command string // its name
	options backend.Options
	// images, if set, are imported, and pulled when pull says so.
	images *imageFlags
	pull   image.Mode
	// planning is set for a command that makes a plan.
	planning *planning
	// copies gets the logs of containers that are started, if it is set.
	copies *logCopies
	// follows says that logs are shown, by the follower once there is one.
	follows  bool
	follower atomic.Pointer[logFollower]
	// interacts says that a container works with this process, by the interaction once there is one.
	interacts   bool
	interaction *interaction
	// trace, if set, gets the steps of the pods' starts.
	trace func(uid types.UID, step string, start time.Time, elapsed time.Duration)
	// remove says what the run removes at its end of what it has made, and cleanup has the arguments of the command that does
	// so if the run is killed.
	remove  runonce.Removal
	cleanup []string
	run     string // its ID, for its report

	keep bool // pods that are stopped are not removed

	engine backend.Engine // nil until it is open
	pods   *runtime.Pods
	node   *v1.Node
	// records has the pods, and owner is the run that owns those of this command.
	records *record.Store
	owner   *record.Run
	cancel  context.CancelFunc // ends the work of pods
	// supplied are the references of the images of --images-dir, and bad is what cannot be used there.
	supplied []string
	bad      []backend.BadArchive
	// wanted are the pods of the input, whose images are not removed to make room for others; nil before they are known.
	wanted     atomic.Pointer[[]*v1.Pod]
	collecting sync.Mutex // one removes unused images at a time
	// readOnly says that the root is read-only, so that the engine works with a copy of the
	// records in it.
	readOnly bool
	defined  []podspec.Object // Services and other objects that were not there before
	unlock   func()           // called last, may be nil
}

func (t *nodeTarget) input(*manifests.Options) {}

// openFor opens the engine for a plan of the manifests, on the node that the flags describe.
func (t *nodeTarget) openFor(ctx context.Context, set *manifests.Set, objects podspec.Objects) error {
	t.want(set.Pods)
	f := t.planning.flags
	devices := t.devices(f.cdiDirs.values)
	node, err := t.console.node(ctx, f, set, devices)
	if err != nil {
		return err
	}
	return t.open(ctx, node, runtime.Options{Objects: objects, Devices: devices, Trace: t.trace})
}

// connect opens the engine for a command that starts nothing, also if the root is read-only.
func (t *nodeTarget) connect(ctx context.Context) error {
	if t.engine != nil {
		return nil
	}
	unlock, readOnly, err := backend.CopyRoot(&t.options)
	if err != nil {
		return unusable(err)
	}
	t.readOnly, t.unlock = readOnly, unlock
	return t.open(ctx, &v1.Node{}, runtime.Options{Objects: &manifests.Set{}})
}

// connectToChange is connect for a command that cannot do its work if the root is read-only, for the reason given.
func (t *nodeTarget) connectToChange(ctx context.Context, why string) error {
	if err := t.connect(ctx); err != nil {
		return err
	}
	if t.readOnly {
		return unusable(fmt.Errorf("%s is read-only: %s", t.options.PodsRoot, why))
	}
	return nil
}

// open opens the engine and its runtime, and imports the images of --images-dir.
func (t *nodeTarget) open(ctx context.Context, node *v1.Node, o runtime.Options) (err error) {
	if t.images != nil && t.command != "plan" {
		t.options.MakeRoom, o.MakeRoom = t.makeRoom, t.makeRoom
	}
	if t.engine, err = t.openEngine(ctx, t.command, t.options); err != nil {
		return err
	}
	if t.follows || t.copies != nil && t.copies.wanted() {
		o.LogCreated = t.logCreated
	}
	if t.interacts {
		o.Created = t.created
	}
	o.Healthchecks = t.options.Healthchecks
	o.Records, o.LogDir, o.Log = record.Open(t.options.Root, t.options.State), t.options.LogDir, t.log
	o.Records.Notify = func(message string) { t.log.Warn(message) }
	t.node, t.records, t.owner = node, o.Records, o.Records.NewRun()
	if o.Pull = t.pull; t.images != nil {
		o.ParallelPulls = t.images.pulls
	}
	// The runtime keeps working after an interrupt, since pods may have to be removed then.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel = cancel
	if t.pods, err = t.engine.Pods(working, node, o); err != nil {
		return unusable(fmt.Errorf("container engine: %w", err))
	}
	return t.importImages(ctx)
}

// openEngine opens the container engine for a command.
func (c *console) openEngine(ctx context.Context, command string, o backend.Options) (backend.Engine, error) {
	defer c.display.Wait("waiting for the container engine")()
	e, err := c.io.Open(ctx, o)
	switch {
	case errors.Is(err, backend.ErrNotRoot):
		return nil, unusable(needsRoot(command))
	case err != nil:
		return nil, unusable(fmt.Errorf("container engine: %w", err))
	}
	return e, nil
}

// needsRoot says what a user who is not root can do.
func needsRoot(command string) error {
	if command == "plan" {
		return errors.New(`"plan" needs root to see this machine and its pods: use sudo, or describe a node, as in --capacity cpu=4,memory=8Gi`)
	}
	return fmt.Errorf("%q needs root: use sudo", command)
}

func (c *console) closeEngine(e backend.Engine) {
	defer c.display.Wait("closing the container engine")()
	if err := e.Close(); err != nil {
		c.log.Warn("could not close the container engine", "error", err)
	}
}

// importImages imports the images of --images-dir that are not in the store.
func (t *nodeTarget) importImages(ctx context.Context) error {
	if t.images == nil {
		return nil
	}
	t.supplied, t.bad = nil, nil
	for _, dir := range t.images.imagesDirs(t.options.Root) {
		begin := time.Now()
		in, err := t.engine.Import(ctx, dir, "")
		if err != nil {
			return importError(fmt.Errorf("--images-dir: %w", err))
		}
		for _, line := range in.Unnamed {
			t.log.Warn(line)
		}
		t.supplied, t.bad = append(t.supplied, in.Refs...), append(t.bad, in.Bad...)
		t.log.Info("imported images", "images", in.Refs, "elapsed", time.Since(begin))
	}
	t.pods.SetPreloaded(t.supplied)
	return nil
}

// enter waits for the turn of the run to plan or to stop pods, and removes what killed runs have left.
func (t *nodeTarget) enter(ctx context.Context, run *record.Run) error {
	if err := t.await(ctx, run); err != nil {
		return err
	}
	if _, err := t.removeKilled(ctx); err != nil {
		t.log.Warn("the next run tries again", "error", err)
	}
	return nil
}

// await waits for the turn of the run to plan or to stop pods.
func (t *nodeTarget) await(ctx context.Context, run *record.Run) error {
	defer t.display.Wait("waiting for another run that plans or stops pods")()
	if err := run.Enter(ctx); err != nil {
		return unusable(err)
	}
	return nil
}

func (t *nodeTarget) close() {
	if t.owner != nil {
		t.warn(t.owner.Close())
		t.cancel()
	}
	if t.pods != nil {
		t.pods.Wait()
	}
	if t.engine != nil {
		t.closeEngine(t.engine)
	}
	if t.unlock != nil {
		t.unlock()
	}
}

// warn logs an error of the coordination with other runs.
func (t *nodeTarget) warn(err error) {
	if err != nil {
		t.log.Warn("could not update the records of other runs", "error", err)
	}
}

func (t *nodeTarget) runtime() runonce.Runtime { return t.pods }
func (t *nodeTarget) logs() runonce.Logs       { return podLogs{t.pods} }
func (t *nodeTarget) lost() error              { return nil }

// complete has the next run plan when the pods that this one stops have stopped, and reserves room for those that
// wait.
func (t *nodeTarget) complete(o *runonce.Options) {
	run := t.owner
	o.AfterStops = func() { t.warn(run.Leave()) }
	o.Reserve = t.reserveMore
}

func (t *nodeTarget) instances(r *runonce.Result) []instance { return t.copies.instancesOf(r.Pod.UID) }

func (t *nodeTarget) list(ctx context.Context, _ func() []string) ([]*v1.Pod, error) {
	if err := t.connect(ctx); err != nil {
		return nil, err
	}
	pods, err := t.pods.List(ctx)
	if err != nil {
		return nil, unusable(fmt.Errorf("listing pods: %w", err))
	}
	return pods, nil
}

func (t *nodeTarget) states(ctx context.Context, _ func() []string) ([]report.PodState, error) {
	if err := t.connect(ctx); err != nil {
		return nil, err
	}
	if err := t.pods.Probe(ctx); err != nil {
		return nil, unusable(fmt.Errorf("probing pods: %w", err))
	}
	known, err := t.pods.Known(false)
	if err != nil {
		return nil, unusable(fmt.Errorf("listing pods: %w", err))
	}
	states := make([]report.PodState, len(known))
	for i, r := range known {
		pod, err := t.pods.Listed(ctx, r, false)
		if err != nil {
			return nil, unusable(fmt.Errorf("listing pods: %w", err))
		}
		states[i] = t.stateOf(pod, r)
	}
	return states, nil
}

// stateOf returns what the last run has decided about the pod, and whether one goes on.
func (t *nodeTarget) stateOf(pod *v1.Pod, r *record.Pod) report.PodState {
	state := report.PodState{Pod: pod, Node: r.Node}
	_, provided := pod.Annotations[podspec.AnnotationNode]
	state.Watched = provided || t.records.IsWatched(r)
	if o := r.Outcome; o != nil {
		state.Outcome, state.Reason, state.Message, state.DecidedAt = runonce.Outcome(o.Outcome), o.Reason, o.Message, o.DecidedAt
	}
	return state
}

func (t *nodeTarget) stop(ctx context.Context, pod *v1.Pod) (string, error) {
	if t.keep {
		return t.end(ctx, pod)
	}
	err := t.owner.Revoke(pod, nil)
	if err == nil {
		err = t.pods.Stop(ctx, pod)
	}
	if !t.readOnly {
		return "removed", err
	}
	if status, serr := t.pods.Status(ctx, pod); serr == nil && !podspec.AnyRuns(status) {
		err = nil // what is left of it is said of all
	}
	return "stopped", err
}

// The reason and the message of a pod that was stopped and kept, as of the kubelet's pods when the node shuts down.
const (
	reasonTerminated  = "Terminated"
	messageTerminated = "Pod was terminated: it was stopped and kept, and a run of it starts it again."
)

// end stops a pod that stays, unless it has ended.
func (t *nodeTarget) end(ctx context.Context, pod *v1.Pod) (string, error) {
	if podspec.Ended(pod.Status.Phase) {
		return "", nil
	}
	err := t.owner.Revoke(pod, nil)
	if err == nil {
		err = t.pods.Terminate(ctx, pod, reasonTerminated, messageTerminated)
	}
	return "stopped", err
}

func (t *nodeTarget) clean(ctx context.Context, o cleanup) (err error) {
	if t.readOnly {
		err = fmt.Errorf("%s is read-only: the images, records and files of the pods are still there; "+
			"run this command again when it is writable", t.options.PodsRoot)
	}
	if o.logs {
		err = errors.Join(err, t.pods.RemoveLogs(o.pods, o.all, o.namespace))
	}
	if o.images && !t.readOnly {
		err = t.afterError(err, t.dropImagesOf(ctx, o.pods))
	}
	if !t.readOnly {
		err = t.afterError(t.removeObjects(ctx, o), err)
	}
	if o.all && o.namespace == "" && !t.readOnly {
		err = t.afterError(lastrun.Clear(t.options.PodsRoot), err)
	}
	if o.all {
		defer t.display.Wait("removing what pods have left")()
		_, kerr := t.removeKilled(ctx)
		err = t.afterError(errors.Join(kerr, t.owner.Sweep(), t.engine.Cleanup(ctx)), err)
	}
	return err
}
