package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/flock"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/lastrun"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/record"
)

// removalFlags say which of the pods that a run has started it removes at its end.
type removalFlags struct{ all, failed, keepFailed bool }

func (f *removalFlags) flags() []cli.Flag {
	return []cli.Flag{
		boolFlag(&f.all, categoryRun, "remove the started pods at the end of the run, also if it is killed", "rm"),
		boolFlag(&f.failed, categoryRun, "remove only those that have not reached their goal", "rm-on-failure"),
		boolFlag(&f.keepFailed, categoryRun, "with --rm, keep those that have failed or timed out", "keep-failed"),
	}
}

func (f *removalFlags) check() error {
	switch {
	case f.failed && f.all:
		return usagef("--rm removes all pods that the run has started, --rm-on-failure only those that have failed: use one of them")
	case f.keepFailed && !f.all:
		return usagef("--keep-failed needs --rm")
	}
	return nil
}

// removal returns what the flags say.
func (f *removalFlags) removal() runonce.Removal {
	switch {
	case f.keepFailed:
		return runonce.KeepFailed
	case f.all:
		return runonce.RemoveAll
	case f.failed:
		return runonce.RemoveFailed
	}
	return runonce.RemoveNone
}

// tie has others remove what the run makes, if it removes that and is killed before. It has made the objects already.
func (t *nodeTarget) tie() {
	if t.remove == runonce.RemoveNone || t.io.Program == "" {
		return
	}
	t.owner.Removes, t.owner.Cleanup = string(t.remove), &flock.Cleanup{Command: append([]string{t.io.Program}, t.cleanup...), Report: t.run}
	for _, o := range t.defined {
		t.owner.Cleanup.Objects = append(t.owner.Cleanup.Objects, objectName(o))
	}
}

// cleanupArguments are those of the command that removes what killed runs have left where the flags say.
func (p *program) cleanupArguments(f *engineFlags, plugins *pluginFlags) []string {
	o := f.engine(p.console)
	args := []string{"down", "--orphans", "--quiet", "--root", o.Root, "--state", o.State, "--log-dir", o.LogDir, "--namespace", o.Namespace}
	if o.Address != "" {
		args = append(args, "--address", o.Address)
	}
	if p.logging.config != "" {
		args = append(args, "--config", p.logging.config)
	}
	for _, dir := range plugins.cniBinDirs.values {
		args = append(args, "--cni-bin-dir", dir)
	}
	return args
}

// objectName names an object that is no pod.
func objectName(o podspec.Object) string {
	return fmt.Sprintf("%T %s", o, podspec.NameOf(o))
}

// removeKilled removes what killed runs would have removed at their end, and returns those pods. It is the turn of this
// command to plan. What cannot be removed is left to the next one.
func (t *nodeTarget) removeKilled(ctx context.Context) (removed []*v1.Pod, err error) {
	killed, err := t.records.Killed()
	if err != nil {
		return nil, err
	}
	for _, run := range killed {
		pods, rerr := t.removeRun(ctx, run)
		removed, err = append(removed, pods...), errors.Join(err, rerr)
	}
	if err != nil {
		err = fmt.Errorf("removing what a killed run has left: %w", err)
	}
	return removed, err
}

func (t *nodeTarget) removeRun(ctx context.Context, run record.Killed) (removed []*v1.Pod, err error) {
	var pods []*v1.Pod
	for _, p := range run.Pods {
		if runonce.Removal(run.Removes).Includes(outcomeOf(p)) {
			pods = append(pods, p.Pod)
		}
	}
	if err := t.reportKilled(ctx, run); err != nil {
		t.log.Warn("could not keep the report of a killed run", "error", err)
	}
	errs := t.stopEach(ctx, pods, runonce.CriticalLast(), "the run that has started it was killed", func(ctx context.Context, i int) error {
		_, err := t.stop(ctx, pods[i])
		return err
	})
	for i, pod := range pods {
		if errs[i] == nil {
			removed = append(removed, pod)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return removed, err
	}
	if len(pods) == len(run.Pods) && len(run.Objects) > 0 {
		if _, err := t.dropObjects(ctx, func(o podspec.Object) bool { return slices.Contains(run.Objects, objectName(o)) }); err != nil {
			return removed, err
		}
	}
	return removed, t.records.Discard(run)
}

// outcomeOf returns what a run has decided about a pod, "" for nothing yet.
func outcomeOf(p *record.Pod) runonce.Outcome {
	if p.Outcome == nil {
		return ""
	}
	return runonce.Outcome(p.Outcome.Outcome)
}

// resultOf returns the result of a pod of a killed run, as far as it is known.
func (t *nodeTarget) resultOf(ctx context.Context, p *record.Pod) runonce.Result {
	r := runonce.Result{
		Pod: p.Pod.DeepCopy(), Outcome: runonce.Canceled, Reason: "RunKilled", Message: "the run was killed before the pod had reached its goal",
	}
	if o := p.Outcome; o != nil {
		r.Outcome, r.Reason, r.Message = runonce.Outcome(o.Outcome), o.Reason, o.Message
	}
	var err error
	if r.Status, err = t.pods.Status(ctx, r.Pod); err == nil {
		r.Pod.Status = r.Status
		r.Containers, err = runonce.Containers(r.Pod, t.logs(), r.Outcome == runonce.Failed)
	}
	if err != nil {
		t.log.Warn("the state of a pod of a killed run is not known", "pod", podspec.FullName(r.Pod), "error", err)
	}
	return r
}

// reportKilled keeps the report of a killed run, in its place. The run has failed, whatever its pods have done.
func (t *nodeTarget) reportKilled(ctx context.Context, run record.Killed) error {
	if run.Report == "" || len(run.Pods) == 0 {
		return nil
	}
	results := make([]runonce.Result, 0, len(run.Pods))
	for _, p := range run.Pods {
		results = append(results, t.resultOf(ctx, p))
	}
	return lastrun.Conclude(t.options.PodsRoot, run.Report, report.New(results, report.ExitFailed, 0).Save(nil))
}

// removeOrphans removes what killed runs have left, when it is the turn of this command, and returns those pods.
func (t *nodeTarget) removeOrphans(ctx context.Context) (removed []*v1.Pod, err error) {
	if err := t.connectToChange(ctx, "the records of runs cannot be changed"); err != nil {
		return nil, err
	}
	if err := backend.LeaveShims(); err != nil {
		return nil, unusable(err)
	}
	if err := t.await(ctx, t.owner); err != nil {
		return nil, err
	}
	return t.removeKilled(ctx)
}
