package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kind is a kind of round.
type kind struct {
	name    string
	weight  int // how often it is chosen, compared to others
	twoRuns bool
	// embedded says that it needs the embedded engine.
	embedded bool
	// edit changes a random pod; may be nil.
	edit func(*rand.Rand, *v1.Pod)
	// order has pods depend on each other.
	order bool
	// disk mounts a file system for the root; may be nil.
	disk func(context.Context, *round) error
	// disturb has runonce do something with the pods, and disturbs it.
	disturb func(context.Context, *round) error
}

// allKinds are all of them.
func allKinds() []kind {
	return []kind{
		{name: "signals", weight: 8, disturb: disturb},
		{name: "hooks", weight: 3, edit: addHooks, disturb: disturb},
		{name: "order", weight: 3, order: true, edit: giveTime, disturb: disturb},
		{name: "reload", weight: 2, twoRuns: true, edit: giveTime, disturb: reload},
		{name: "stop", weight: 3, edit: giveTime, disturb: stop},
		{name: "remove", weight: 3, edit: giveTime, disturb: remove},
		{name: "full", weight: 1, edit: giveTime, disk: smallDisk, disturb: fillDisk},
		{name: "power", weight: 1, embedded: true, disk: loopDisk, disturb: cutPower},
	}
}

func kindNames() string {
	all := allKinds()
	names := make([]string, 0, len(all))
	for _, k := range all {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// chooseKinds returns the kinds with these names, or all that the engine can have.
func chooseKinds(names, engine string) (chosen []kind, err error) {
	all := allKinds()
	if names == "" {
		return slices.DeleteFunc(all, func(k kind) bool { return k.embedded && engine != embedded }), nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
		if i < 0 || all[i].embedded && engine != embedded {
			return nil, fmt.Errorf("there is no kind of rounds %q with engine %s", name, engine)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// chooseKind chooses by weight.
func (w *world) chooseKind() kind {
	sum := 0
	for _, k := range w.kinds {
		sum += k.weight
	}
	n := w.IntN(sum)
	for _, k := range w.kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	return w.kinds[0] // not reached
}

// giveTime makes sure that a container that is stopped can say so, on a busy machine too.
func giveTime(_ *rand.Rand, p *v1.Pod) {
	grace := int64(60)
	p.Spec.TerminationGracePeriodSeconds = &grace
}

// How the names of the files end that hooks and probes write, beside the ledger of their container.
const (
	postStartFile, preStopFile, probeFile = ".post", ".pre", ".probe"
)

// addHooks adds hooks, and a liveness probe that kills the first instance of a container.
func addHooks(r *rand.Rand, p *v1.Pod) {
	giveTime(r, p)
	run := func(words ...string) *v1.ExecAction {
		return &v1.ExecAction{Command: append([]string{"/bin/box"}, words...)}
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		file := c.Args[1]
		c.Lifecycle = &v1.Lifecycle{}
		if r.IntN(2) == 0 {
			c.Lifecycle.PostStart = &v1.LifecycleHandler{Exec: run("do", "sleep "+strconv.Itoa(1+r.IntN(500))+"ms", "append "+file+postStartFile+" done")}
		}
		if r.IntN(2) == 0 {
			c.Lifecycle.PreStop = &v1.LifecycleHandler{Exec: run("append", file+preStopFile, "done")}
		}
		if p.Spec.RestartPolicy == v1.RestartPolicyAlways && r.IntN(3) == 0 {
			c.LivenessProbe = &v1.Probe{
				ProbeHandler:  v1.ProbeHandler{Exec: run("flaky", file+probeFile, "2")},
				PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 30,
			}
		}
	}
}

// reload has two watches run, and changes their manifests and has them read again, faster than they
// follow.
func reload(ctx context.Context, r *round) error {
	r.removed = true
	r.commands = nil
	for _, dir := range r.dirs {
		args := r.runArgs(dir)
		args[0] = "watch"
		c, err := r.start(ctx, args...)
		if err != nil {
			return err
		}
		c.watch = true
		r.commands = append(r.commands, c)
	}
	pause(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
	for range 5 + r.IntN(30) {
		n := r.IntN(len(r.pods))
		if r.IntN(3) > 0 {
			metav1.SetMetaDataLabel(&r.pods[n].ObjectMeta, "version", strconv.Itoa(r.IntN(4)))
			if err := r.writeManifest(n); err != nil {
				return err
			}
			r.breaks("a changed manifest", r.pods[n].Name)
		}
		if r.IntN(2) == 0 {
			name, err := r.commands[n%len(r.commands)].signal(syscall.SIGHUP)
			if err != nil {
				return err
			}
			r.breaks("SIGHUP", name)
		}
		pause(ctx, time.Duration(r.IntN(150))*time.Millisecond)
	}
	pause(ctx, time.Duration(r.IntN(2000))*time.Millisecond)
	return r.endCommands(ctx)
}

// stop has pods stopped, and whoever stops them interrupted or killed.
func stop(ctx context.Context, r *round) error {
	r.removed = true
	r.commands = nil
	for _, dir := range r.dirs {
		c, err := r.start(ctx, r.runArgs(dir)...)
		if err != nil {
			return err
		}
		r.commands = append(r.commands, c)
	}
	pause(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
	down, err := r.start(ctx, "down", []string{"--all", r.dirs[0], filepath.Join(r.dirs[0], r.pods[0].Name+".yaml")}[r.IntN(3)])
	if err != nil {
		return err
	}
	signals := [][]syscall.Signal{{syscall.SIGINT}, {syscall.SIGINT, syscall.SIGINT}, {syscall.SIGKILL}, {}}[r.IntN(4)]
	for _, sig := range signals {
		pause(ctx, time.Duration(r.IntN(600))*time.Millisecond)
		name, err := down.signal(sig)
		if err != nil {
			return err
		}
		if name != "" {
			r.breaks(fmt.Sprintf("%v to down", sig), name)
		}
	}
	r.commands = append(r.commands, down)
	return r.endCommands(ctx)
}

// remove has runs killed that remove their pods, and waits until these have gone without them.
func remove(ctx context.Context, r *round) error {
	r.removed = true
	r.commands = nil
	for _, dir := range r.dirs {
		c, err := r.start(ctx, append(r.runArgs(dir), "--rm")...)
		if err != nil {
			return err
		}
		c.name = filepath.Base(dir)
		r.commands = append(r.commands, c)
	}
	for _, c := range r.commands {
		pause(ctx, time.Duration(r.IntN(900))*time.Millisecond)
		name, err := c.signal(syscall.SIGKILL)
		if err != nil {
			return err
		}
		if name != "" {
			r.breaks("kill -9 of run --rm", name)
		}
	}
	if err := r.endCommands(ctx); err != nil {
		return err
	}
	for deadline := time.Now().Add(limit); ; pause(ctx, 20*time.Millisecond) {
		left, err := r.installation().Containers()
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the containers of killed runs with --rm have not ended: %s", strings.Join(left, "\n"))
		}
	}
}

// endCommands waits for the end of the commands.
func (r *round) endCommands(ctx context.Context) error {
	for _, c := range r.commands {
		if c.watch {
			pause(ctx, time.Duration(r.IntN(1500))*time.Millisecond)
			if _, err := c.signal(syscall.SIGTERM); err != nil {
				return err
			}
		}
		if out := c.wait(); out.timedOut {
			return fmt.Errorf("%s did not end within %s: %s", c.cmd, limit, out.stderr)
		}
	}
	return nil
}
