package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/hack/machine"
	"github.com/runonce/runonce/internal/podspec"
)

// verify runs the pods once more, undisturbed, and compares what is reported with the ledgers.
func (r *round) verify(ctx context.Context) error {
	var errs []error
	var all []row
	for i, dir := range r.dirs {
		rep, out, err := r.ask(ctx, r.runArgs(dir)...)
		if err != nil {
			return err
		}
		all = append(all, rep.Results...)
		if rep.ExitCode != out.code {
			errs = append(errs, fmt.Errorf("the exit code is %d, in the report %d", out.code, rep.ExitCode))
		}
		want := 0
		for n, p := range r.pods {
			if n%len(r.dirs) != i {
				continue
			}
			res, err := find(rep.Results, p.Name)
			if err != nil {
				return err
			}
			if res.Outcome == "Failed" || res.Outcome == "Canceled" {
				want = 1
			}
			errs = append(errs, r.verifyPod(ctx, p, res), r.verifyOrder(n))
		}
		if out.code != want {
			errs = append(errs, fmt.Errorf("the exit code is %d, want %d: %s", out.code, want, out.stderr))
		}
	}
	for n := range r.pods {
		errs = append(errs, r.verifyNames(n, all))
	}
	return errors.Join(append(errs, r.verifyList(ctx, all))...)
}

func find(rows []row, name string) (row, error) {
	for _, r := range rows {
		if r.Name == name {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("pod %s is missing in the report", name)
}

// verifyPod compares the result of a pod with the ledgers of its containers.
func (r *round) verifyPod(ctx context.Context, p *v1.Pod, res row) error {
	r.counted++
	killed := r.killed[""] || r.killed[p.Name]
	errs := []error{r.verifyOutcome(p, res, killed)}
	for _, c := range res.Containers {
		running := r.verifyRunning(p.Name, c)
		ledger, err := awaitLedger(ledgerOf(r.ledgers, p, c.Name), c.State == "Running")
		if err != nil {
			return err
		}
		r.instances += len(ledger)
		err = errors.Join(verifyState(c, ledger, killed), running)
		if n := len(ledger); err == nil && n > 0 && !killed && res.Outcome != "Failed" && (n < c.Restarts+1 || n > c.Restarts+1 && !r.removed) {
			err = fmt.Errorf("%d restarts, but it ran %d times", c.Restarts, n)
		}
		if err == nil {
			err = errors.Join(verifyWork(c, res, ledger), r.verifyPostStart(p, c, ledger, killed))
		}
		if err == nil && len(ledger) > 0 {
			err = r.verifyLog(ctx, p.Name, c.Name, ledger, killed)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pod %s (%s: %s %s), container %s: %w; its ledger: %+v",
				p.Name, res.Outcome, res.Reason, res.Message, c.Name, err, ledger))
		}
	}
	return errors.Join(errs...)
}

// verifyWork checks that a pod that has succeeded has done its work, whatever has happened to it, and that
// its instances ran one after the other.
func verifyWork(c container, res row, ledger []instance) error {
	if len(ledger) == 0 {
		return nil
	}
	if last := ledger[len(ledger)-1]; res.Outcome == "Succeeded" && last.stopped && c.Name != sidecarName {
		return errors.New("the pod has succeeded, but the container was stopped before it had done its work")
	}
	for _, one := range ledger {
		if one.overlaps {
			return fmt.Errorf("instance %s started while another one ran", one.name)
		}
	}
	return nil
}

// verifyPostStart checks that the hook of a container that is reported as running has done its work.
func (r *round) verifyPostStart(p *v1.Pod, c container, ledger []instance, killed bool) error {
	def := podspec.Container(p, c.Name)
	if c.State != "Running" || killed || len(ledger) != 1 || def == nil || def.Lifecycle == nil {
		return nil
	}
	if _, err := os.Stat(ledgerOf(r.ledgers, p, c.Name) + postStartFile); err != nil && def.Lifecycle.PostStart != nil {
		return fmt.Errorf("reported as running, but its postStart hook has not passed: %w", err)
	}
	if def.Lifecycle.PreStop != nil {
		r.preStops = append(r.preStops, ledgerOf(r.ledgers, p, c.Name)+preStopFile)
	}
	return nil
}

// verifyPreStops checks, after all was stopped, that the hooks of the containers that ran have run.
func (r *round) verifyPreStops() error {
	for _, path := range r.preStops {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("a container was stopped without its preStop hook: %w", err)
		}
	}
	return nil
}

// verifyState compares the state of a container with its ledger.
func verifyState(c container, ledger []instance, killed bool) error {
	if len(ledger) == 0 {
		if c.State == "Running" || c.ExitCode != nil && !killed {
			return fmt.Errorf("reported as %s, but it has never run", c.State)
		}
		return nil
	}
	last := ledger[len(ledger)-1]
	switch {
	case c.State == "Running" && last.ended:
		return errors.New("reported as running, but it has ended")
	case c.State == "Terminated" && !last.ended && !killed:
		return errors.New("reported as terminated, but it has not ended")
	case c.State == "Terminated" && last.ended && *c.ExitCode != last.code && !killed:
		return fmt.Errorf("reported with exit code %d", *c.ExitCode)
	}
	return nil
}

// verifyRunning checks the container's processes, of which the OCI runtime may have to execute the
// container's program yet.
func (r *round) verifyRunning(pod string, c container) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		processes, err := r.installation().Containers()
		if err == nil {
			err = verifyProcesses(pod, c, processes)
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// verifyProcesses checks that a container that is reported as running has one process, and that
// no other has any, whatever was killed.
func verifyProcesses(pod string, c container, processes []string) error {
	var own []string
	for _, p := range processes {
		if strings.Contains(p, " "+containerCommand+" /ledgers/"+pod+"."+c.Name+" ") {
			own = append(own, p)
		}
	}
	if runs := c.State == "Running"; len(own) > 1 || runs != (len(own) == 1) {
		return fmt.Errorf("reported as %s, but its processes are %q", c.State, own)
	}
	return nil
}

// verifyOutcome checks the outcome by what the pod does, unless its containers were killed.
func (r *round) verifyOutcome(p *v1.Pod, res row, killed bool) error {
	want := outcomes(p)
	if res.Outcome == want || killed && res.Outcome == "Failed" || r.isCanceled(p, res) {
		return nil
	}
	return fmt.Errorf("pod %s is %s (%s: %s), want %s", p.Name, res.Outcome, res.Reason, res.Message, want)
}

// verifyLog checks that the log has the last instance's lines, and no other's.
func (r *round) verifyLog(ctx context.Context, pod, container string, ledger []instance, killed bool) error {
	out := r.do(ctx, "logs", "default/"+pod, "-c", container)
	last := "instance " + ledger[len(ledger)-1].name
	lines := slices.DeleteFunc(strings.Split(out.stdout, "\n"), func(l string) bool { return l == "" })
	switch {
	case out.code != 0:
		return fmt.Errorf("logs: exit code %d: %s", out.code, out.stderr)
	case killed && len(lines) == 0:
		return nil // it was killed before its line was copied
	case len(lines) != 1 || lines[0] != last && !killed:
		return fmt.Errorf("the log has %q, want %q", lines, last)
	}
	return nil
}

// verifyList checks that ps says the same of the pods as the reports.
func (r *round) verifyList(ctx context.Context, reported []row) error {
	rep, out, err := r.ask(ctx, "ps", "-o", "json")
	if err != nil {
		return err
	}
	canceled := func(r row) bool { return r.Outcome == "Canceled" } // they may never have been started
	least := len(slices.DeleteFunc(slices.Clone(reported), canceled))
	if out.code != 0 || len(rep.Pods) > len(r.pods) || len(rep.Pods) < least {
		return fmt.Errorf("ps: exit code %d, %d pods, want %d: %s", out.code, len(rep.Pods), len(r.pods), out.stderr)
	}
	for _, want := range reported {
		if canceled(want) {
			continue
		}
		got, err := find(rep.Pods, want.Name)
		if err != nil {
			return fmt.Errorf("ps: %w", err)
		}
		if diff := cmp.Diff(want.Containers, got.Containers); diff != "" && want.Outcome != "Failed" {
			return fmt.Errorf("ps and the report differ on pod %s (-report +ps): %s", want.Name, diff)
		}
	}
	return nil
}

// verifyNothingLeft checks that the machine is as it was before. What has just been killed may
// take a moment to go.
func (r *round) verifyNothingLeft(ctx context.Context, before machine.State) error {
	var diff string
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		now, err := r.installation().Inspect(ctx)
		if err != nil {
			return err
		}
		if diff = cmp.Diff(machine.State{}, now.Since(before)); diff == "" || time.Now().After(deadline) {
			break
		}
	}
	files, err := r.installation().PodFiles()
	if err != nil {
		return err
	}
	if diff != "" || len(files) > 0 {
		return fmt.Errorf("left on the machine: %s%s", diff, strings.Join(files, "\n"))
	}
	return nil
}
