package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/probe"
	"github.com/runonce/runonce/runtime/record"
)

// probeRunning makes sure that exactly the running containers of the pod are probed, also
// after the call.
func (p *Pods) probeRunning(ctx context.Context, w *work) {
	var running []string
	for _, def := range podspec.Containers(w.pod) {
		if c, ok := w.running[def.Name]; ok {
			running = append(running, c.ID)
			p.startProbes(ctx, w, def, c)
		}
	}
	p.probes.keepOnly(w.pod.UID, running)
}

// startProbes probes the container until it is stopped, if it has probes.
func (p *Pods) startProbes(ctx context.Context, w *work, def *v1.Container, c engine.Container) {
	def = podstate.WithHealthcheck(def, c)
	if def.StartupProbe == nil && def.ReadinessProbe == nil && def.LivenessProbe == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	target := p.counted(w.pod.UID, p.target(withoutStartup(def, w.record, c), c, w.sandbox))
	status := probe.Initial(target.Container)
	if status.Ready {
		status.Since = time.Now()
	}
	if !p.probes.add(c.ID, &probeWorker{pod: w.pod.UID, status: status, stop: cancel}) {
		cancel()
		return
	}
	uid := string(w.pod.UID)
	report := func(s probe.Status) {
		before := p.probes.setStatus(c.ID, s)
		p.probeEvents(w.pod, def.Name, before, s)
		if s.Started && !before.Started && target.Container.StartupProbe != nil {
			p.recordStartedUp(ctx, w.pod, c)
		}
		p.watch.notify(uid)
	}
	p.probes.running.Go(func() { probe.Watch(ctx, target, c.StartedAt, report) })
}

// Wait waits, when the context of New is done, until the probes have ended: a command that nobody
// kills may run in its container for ever. All events are written then.
func (p *Pods) Wait() {
	defer p.events.flushAll()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.probes.running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(probesLimit):
	}
}

// withoutStartup returns the container without its startup probe if that has succeeded in an
// earlier process: like the kubelet after a restart, we do not run it again.
func withoutStartup(def *v1.Container, r *record.Pod, c engine.Container) *v1.Container {
	if def.StartupProbe == nil || !r.HasStartedUp(def, c.ID) {
		return def
	}
	def = def.DeepCopy()
	def.StartupProbe = nil
	return def
}

// recordStartedUp records that the startup probe of the container has succeeded.
func (p *Pods) recordStartedUp(ctx context.Context, pod *v1.Pod, c engine.Container) {
	err := p.update(pod, func(r *record.Pod) {
		if r.StartedUp == nil {
			r.StartedUp = map[string]string{}
		}
		r.StartedUp[c.Name] = c.ID
	})
	if err != nil {
		p.o.Log.WarnContext(ctx, "could not record that a startup probe has succeeded", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name, "error", err)
	}
}

const (
	// maxProbes is how many containers Probe probes at once.
	maxProbes = 32
	// probesLimit bounds Probe and Wait: the timeout of a probe may be minutes, and nobody waits for that.
	probesLimit = 10 * time.Second
)

var errNoAnswer = fmt.Errorf("no answer within %s", probesLimit)

// Probe probes each running container of earlier runs that has a startup or a readiness probe,
// once, so that List tells whether it is ready now. Containers that this process probes anyway
// are left out. A probe that takes long has not succeeded.
func (p *Pods) Probe(ctx context.Context) error {
	known, err := p.o.Records.List()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeoutCause(ctx, probesLimit, errNoAnswer)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, maxProbes)
	for _, r := range known {
		if !p.mayHaveProbes(ctx, r.Pod) {
			continue
		}
		o, err := p.observe(ctx, r.Pod)
		if err != nil {
			return err
		}
		if o.Sandbox == nil {
			continue // its containers cannot be reached
		}
		for _, def := range podspec.Containers(r.Pod) {
			c := o.Containers[def.Name]
			def = withoutStartup(podstate.WithHealthcheck(def, c), r, c)
			if c.State != engine.StateRunning || !hasProbes(def) || r.AwaitsPostStart(def, c.ID) || !p.probes.add(c.ID, &probeWorker{pod: r.Pod.UID, stop: func() {}}) {
				continue
			}
			wg.Go(func() {
				slots <- struct{}{}
				p.probes.setStatus(c.ID, probe.Once(limited, p.target(def, c, *o.Sandbox), c.StartedAt))
				<-slots
			})
		}
	}
	return nil
}

// mayHaveProbes says, without looking any further, whether there is something to probe in a pod.
func (p *Pods) mayHaveProbes(ctx context.Context, pod *v1.Pod) bool {
	all, err := p.o.Engine.Containers(ctx, string(pod.UID))
	return err != nil || slices.ContainsFunc(all, func(c engine.Container) bool {
		def := podspec.Container(pod, c.Name)
		return def != nil && hasProbes(podstate.WithHealthcheck(def, c))
	})
}

func hasProbes(def *v1.Container) bool { return def.StartupProbe != nil || def.ReadinessProbe != nil }

// runHook follows pkg/kubelet/lifecycle/handlers.go, also in its words: any HTTP status is a
// success, and a tcpSocket hook is not run.
func (p *Pods) runHook(ctx context.Context, pod *v1.Pod, c engine.Container, hook *v1.LifecycleHandler) error {
	// The kubelet's words begin with a capital, as errors do not here.
	const execHook, httpHook, sleepHook = "Exec lifecycle hook", "HTTP lifecycle hook", "Sleep lifecycle hook"
	whose := fmt.Sprintf("for Container %q in Pod \"%s_%s(%s)\" failed - error", c.Name, pod.Name, pod.Namespace, pod.UID)
	switch {
	case hook.Exec != nil:
		command := hook.Exec.Command
		res, err := p.o.Engine.Exec(ctx, c.ID, command)
		output := strings.TrimSpace(string(res.Output))
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), res.ExitCode, output)
		}
		if err != nil {
			return fmt.Errorf("%s (%v) %s: %w, message: %q", execHook, command, whose, err, output)
		}
		return nil
	case hook.HTTPGet != nil:
		sandbox, err := p.o.Sandboxes.Get(ctx, pod)
		if err == nil {
			err = p.target(podspec.Container(pod, c.Name), c, sandbox).Hook(ctx, hook.HTTPGet)
		}
		if err != nil {
			return fmt.Errorf("%s (%s) %s: %w", httpHook, hook.HTTPGet.Path, whose, err)
		}
		return nil
	case hook.Sleep != nil:
		if err := sleep(ctx, time.Duration(hook.Sleep.Seconds)*time.Second); err != nil {
			return fmt.Errorf("%s (%d) %s: %w", sleepHook, hook.Sleep.Seconds, whose, err)
		}
		return nil
	}
	return errors.New("the hook has no handler")
}

// sleep returns an error if ctx is done before the time is over. A hook may sleep for the whole grace
// period, which began a moment before.
func sleep(ctx context.Context, d time.Duration) error {
	begin := time.Now()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		if time.Since(begin).Round(time.Second) < d {
			return errors.New("container terminated before sleep hook finished")
		}
		return nil
	}
}

// Probed is a result of a probe of a container.
type Probed struct {
	Container string
	Probe     probe.Kind
	Result    probe.Result
}

// ProbeResults returns how often this process has had each result of the pod's probes.
func (p *Pods) ProbeResults(pod *v1.Pod) (counts map[Probed]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.memories[pod.UID]; m != nil {
		counts = maps.Clone(m.probed)
	}
	return counts
}

// counted returns the target with its results counted.
func (p *Pods) counted(uid types.UID, t probe.Target) probe.Target {
	name := t.Container.Name
	t.Checked = func(k probe.Kind, r probe.Result) {
		p.remember(uid, func(m *memory) { m.probed[Probed{name, k, r}]++ })
	}
	return t
}

// target is the container as probes and hooks reach it: by the pod's address, from inside
// its network namespace.
func (p *Pods) target(def *v1.Container, c engine.Container, sandbox engine.Sandbox) probe.Target {
	t := probe.Target{Container: def, NetNS: sandbox.NetNS, Exec: func(ctx context.Context, command []string) (int32, []byte, error) {
		res, err := p.o.Engine.Exec(ctx, c.ID, command)
		return res.ExitCode, res.Output, err
	}}
	if len(sandbox.IPs) > 0 {
		t.IP = sandbox.IPs[0]
	}
	return t
}
