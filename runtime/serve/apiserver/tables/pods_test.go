package tables_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/serve/apiserver/tables"
)

// podWith returns a pod with the containers of the statuses. Those of init containers whose names begin with "side" are
// sidecars.
func podWith(inits, containers []v1.ContainerStatus) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: meta()}
	pod.Status.Phase = v1.PodRunning
	pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = inits, containers
	for _, cs := range inits {
		c := v1.Container{Name: cs.Name}
		if strings.HasPrefix(cs.Name, "side") {
			c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for _, cs := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: cs.Name})
	}
	return pod
}

func running(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Ready: true, Started: new(true), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

// unready runs, but does not pass its probe yet.
func unready(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, Started: new(false), State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func waiting(name, reason string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}}
}

func ended(name, reason string, code, signal int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}}
}

func completed(name string) v1.ContainerStatus { return ended(name, "Completed", 0, 0) }

// restarted makes the container one that was restarted.
func restarted(cs v1.ContainerStatus, count int32, last *v1.ContainerStateTerminated) v1.ContainerStatus {
	cs.RestartCount, cs.LastTerminationState.Terminated = count, last
	return cs
}

func statuses(all ...v1.ContainerStatus) []v1.ContainerStatus { return all }

// having changes a pod.
func having(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(pod)
	return pod
}

func condition(kind v1.PodConditionType, status v1.ConditionStatus) v1.PodCondition {
	return v1.PodCondition{Type: kind, Status: status}
}

func TestPodStatus(t *testing.T) {
	t.Parallel()
	ready := func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{condition(v1.PodReady, v1.ConditionTrue)} }
	phase := func(phase v1.PodPhase) func(p *v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = phase } }
	deleted := func(phase v1.PodPhase, reason string) func(p *v1.Pod) {
		return func(p *v1.Pod) {
			p.DeletionTimestamp, p.Status.Phase, p.Status.Reason = new(ago(minutes)), phase, reason
		}
	}
	gated := func(p *v1.Pod) {
		p.Status.Phase, p.Status.Reason = v1.PodPending, "Other"
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonSchedulingGated}}
	}
	one := statuses(running("a"))
	compareAll(t, map[string]*v1.Pod{
		"empty":            {ObjectMeta: meta()},
		"pending":          having(podWith(nil, nil), phase(v1.PodPending)),
		"no age":           {Status: v1.PodStatus{Phase: v1.PodPending}},
		"running":          podWith(nil, statuses(running("a"), running("b"))),
		"unready":          podWith(nil, statuses(unready("a"), running("b"))),
		"no status yet":    having(podWith(nil, one), func(p *v1.Pod) { p.Status.ContainerStatuses = nil }),
		"evicted":          having(podWith(nil, nil), func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted" }),
		"gated":            having(podWith(nil, nil), gated),
		"crash loop":       podWith(nil, statuses(waiting("a", "CrashLoopBackOff"), running("b"))),
		"two reasons":      podWith(nil, statuses(waiting("a", "CrashLoopBackOff"), waiting("b", "ImagePullBackOff"))),
		"wait, no reason":  podWith(nil, statuses(waiting("a", ""), running("b"))),
		"creating":         having(podWith(nil, statuses(waiting("a", "ContainerCreating"))), phase(v1.PodPending)),
		"succeeded":        having(podWith(nil, statuses(completed("a"))), phase(v1.PodSucceeded)),
		"failed":           having(podWith(nil, statuses(ended("a", "Error", 1, 0))), phase(v1.PodFailed)),
		"signal":           having(podWith(nil, statuses(ended("a", "", 137, 9))), phase(v1.PodFailed)),
		"exit code":        having(podWith(nil, statuses(ended("a", "", 3, 0))), phase(v1.PodFailed)),
		"exit code 0":      having(podWith(nil, statuses(ended("a", "", 0, 0))), phase(v1.PodSucceeded)),
		"one of two ended": podWith(nil, statuses(completed("a"), running("b"))),
		"still ready":      having(podWith(nil, statuses(completed("a"), running("b"))), ready),
		"one failed":       podWith(nil, statuses(completed("a"), ended("b", "Error", 1, 0), running("c"))),
		"failed, ready":    having(podWith(nil, statuses(completed("a"), ended("b", "Error", 1, 0), running("c"))), ready),
		"two failed":       podWith(nil, statuses(completed("a"), ended("b", "OOMKilled", 137, 9), ended("c", "Error", 1, 0))),
		"failed first":     podWith(nil, statuses(ended("a", "Error", 1, 0), completed("b"))),
		"terminating":      having(podWith(nil, one), deleted(v1.PodRunning, "")),
		"deleted, done":    having(podWith(nil, statuses(completed("a"))), deleted(v1.PodSucceeded, "")),
		"deleted, failed":  having(podWith(nil, statuses(ended("a", "", 1, 0))), deleted(v1.PodFailed, "")),
		"lost":             having(podWith(nil, one), deleted(v1.PodRunning, "NodeLost")),
		"lost, failed":     having(podWith(nil, one), deleted(v1.PodFailed, "NodeLost")),
		"lost, kept":       having(podWith(nil, one), func(p *v1.Pod) { p.Status.Reason = "NodeLost" }),
	})
}

func TestPodInits(t *testing.T) {
	t.Parallel()
	initialized := func(status v1.ConditionStatus) func(p *v1.Pod) {
		return func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{condition(v1.PodInitialized, status)} }
	}
	next := statuses(waiting("a", "PodInitializing"))
	compareAll(t, map[string]*v1.Pod{
		"first runs":        podWith(statuses(running("i"), waiting("j", "PodInitializing")), next),
		"second runs":       podWith(statuses(completed("i"), running("j")), next),
		"first waits":       podWith(statuses(waiting("i", "PodInitializing"), waiting("j", "PodInitializing")), next),
		"waits, no reason":  podWith(statuses(waiting("i", "")), next),
		"no state":          podWith(statuses(v1.ContainerStatus{Name: "i"}), next),
		"crash loop":        podWith(statuses(waiting("i", "CrashLoopBackOff")), next),
		"failed":            podWith(statuses(ended("i", "Error", 1, 0)), next),
		"failed by signal":  podWith(statuses(ended("i", "", 137, 9)), next),
		"failed with code":  podWith(statuses(ended("i", "", 2, 0)), next),
		"all done":          podWith(statuses(completed("i"), completed("j")), next),
		"all done, running": podWith(statuses(completed("i"), completed("j")), statuses(running("a"))),
		"sidecar starts":    podWith(statuses(unready("side1"), waiting("j", "PodInitializing")), next),
		"sidecar waits":     podWith(statuses(waiting("side1", "CrashLoopBackOff")), next),
		"sidecar failed":    podWith(statuses(ended("side1", "Error", 1, 0)), next),
		"sidecar done":      podWith(statuses(completed("side1")), statuses(running("a"))),
		"sidecars":          podWith(statuses(running("side1"), completed("i"), running("side2")), statuses(running("a"))),
		"sidecar unready": having(podWith(statuses(running("side1")), statuses(running("a"))), func(p *v1.Pod) {
			p.Status.InitContainerStatuses[0].Ready = false
		}),
		"sidecar, Started unknown": having(podWith(statuses(running("side1")), statuses(running("a"))), func(p *v1.Pod) {
			p.Status.InitContainerStatuses[0].Started = nil
		}),
		"sidecar, init runs": podWith(statuses(running("side1"), running("i")), next),
		"initialized":        having(podWith(statuses(waiting("side1", "CrashLoopBackOff")), statuses(running("a"))), initialized(v1.ConditionTrue)),
		"initialized, ended": having(podWith(statuses(unready("side1")), statuses(completed("a"))), initialized(v1.ConditionTrue)),
		"not initialized":    having(podWith(statuses(waiting("side1", "CrashLoopBackOff")), statuses(running("a"))), initialized(v1.ConditionFalse)),
		"unknown container":  having(podWith(statuses(running("side1")), statuses(running("a"))), func(p *v1.Pod) { p.Spec.InitContainers = nil }),
	})
}

func TestPodRestarts(t *testing.T) {
	t.Parallel()
	long, short := &v1.ContainerStateTerminated{FinishedAt: ago(hours)}, &v1.ContainerStateTerminated{FinishedAt: ago(minutes)}
	compareAll(t, map[string]*v1.Pod{
		"no time":            podWith(nil, statuses(restarted(running("a"), 2, nil))),
		"zero time":          podWith(nil, statuses(restarted(running("a"), 2, &v1.ContainerStateTerminated{}))),
		"time, no restart":   podWith(nil, statuses(restarted(running("a"), 0, long))),
		"once":               podWith(nil, statuses(restarted(running("a"), 1, long))),
		"last of two":        podWith(nil, statuses(restarted(running("a"), 1, long), restarted(running("b"), 2, short))),
		"last of two, first": podWith(nil, statuses(restarted(running("a"), 1, short), restarted(running("b"), 2, long))),
		"init":               podWith(statuses(restarted(running("i"), 3, long)), statuses(waiting("a", "PodInitializing"))),
		"init done":          podWith(statuses(restarted(completed("i"), 3, short)), statuses(restarted(running("a"), 1, long))),
		"init done, failing": podWith(statuses(restarted(completed("i"), 3, short), restarted(waiting("j", "CrashLoopBackOff"), 4, long)), nil),
		"sidecar":            podWith(statuses(restarted(running("side1"), 3, short)), statuses(restarted(running("a"), 1, long))),
		"sidecar, init":      podWith(statuses(restarted(running("side1"), 3, long), restarted(completed("i"), 1, short)), statuses(running("a"))),
		"sidecars":           podWith(statuses(restarted(running("side1"), 3, short), restarted(running("side2"), 4, long)), statuses(running("a"))),
	})
}

func TestPodWide(t *testing.T) {
	t.Parallel()
	pod := func(change func(p *v1.Pod)) *v1.Pod { return having(podWith(nil, statuses(running("a"))), change) }
	compareAll(t, map[string]*v1.Pod{
		"addresses": pod(func(p *v1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
		}),
		"empty address": pod(func(p *v1.Pod) { p.Status.PodIPs = []v1.PodIP{{}} }),
		"nodes":         pod(func(p *v1.Pod) { p.Spec.NodeName, p.Status.NominatedNodeName = "n", "m" }),
		"gates": pod(func(p *v1.Pod) {
			p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}, {ConditionType: "c"}, {ConditionType: "d"}}
			p.Status.Conditions = []v1.PodCondition{
				condition("b", v1.ConditionTrue), condition("a", v1.ConditionTrue), condition("a", v1.ConditionFalse),
				condition("c", v1.ConditionFalse), condition("c", v1.ConditionTrue),
			}
		}),
	})
}

// TestRandomPods finds combinations of which nobody has thought.
func TestRandomPods(t *testing.T) {
	t.Parallel()
	p := newPrinter()
	seen := map[string]bool{}
	for seed := range uint64(2000) {
		pod := randomPod(rand.New(rand.NewPCG(seed, 1)))
		if diff := p.compare(t, pod); diff != "" {
			t.Errorf("seed %d: kubernetes (-), this package (+):\n%s", seed, diff)
		}
		// The status is the third cell.
		seen[fmt.Sprint(tables.Row(pod, time.Now()).Cells[2])] = true
	}
	if len(seen) < 30 {
		t.Errorf("only %d different statuses: %v", len(seen), seen)
	}
}

// one returns one of the values.
func one[T any](rng *rand.Rand, values ...T) T { return values[rng.IntN(len(values))] }

func randomPod(rng *rand.Rand) *v1.Pod {
	var inits, containers []v1.ContainerStatus
	for i := range rng.IntN(4) {
		cs := completed("i" + strconv.Itoa(i))
		switch rng.IntN(4) {
		case 0:
			cs = randomStatus(rng, "i"+strconv.Itoa(i))
		case 1:
			cs = randomStatus(rng, "side"+strconv.Itoa(i))
		case 2:
			cs = running("side" + strconv.Itoa(i))
		}
		inits = append(inits, randomRestarts(rng, cs))
	}
	for i := range rng.IntN(4) {
		containers = append(containers, randomRestarts(rng, randomStatus(rng, "c"+strconv.Itoa(i))))
	}
	pod := podWith(inits, containers)
	pod.Status.Phase = one(rng, v1.PodPending, v1.PodRunning, v1.PodRunning, v1.PodSucceeded, v1.PodFailed, v1.PodUnknown, "")
	pod.Status.Reason = one(rng, "", "", "", "", "Evicted", "NodeLost")
	if rng.IntN(5) == 0 {
		pod.DeletionTimestamp = new(ago(minutes))
	}
	kinds := []v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.PodReady, "a", "b"}
	for _, i := range rng.Perm(len(kinds))[:rng.IntN(len(kinds))] {
		c := condition(kinds[i], one(rng, v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown))
		c.Reason = one(rng, "", "", "", v1.PodReasonSchedulingGated)
		pod.Status.Conditions = append(pod.Status.Conditions, c)
	}
	for _, kind := range kinds[3:][:rng.IntN(3)] {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, v1.PodReadinessGate{ConditionType: kind})
	}
	for _, ip := range []string{"10.0.0.1", "fd00::1"}[:rng.IntN(3)] {
		pod.Status.PodIPs = append(pod.Status.PodIPs, v1.PodIP{IP: ip})
	}
	pod.Spec.NodeName, pod.Status.NominatedNodeName = one(rng, "", "n"), one(rng, "", "m")
	return pod
}

func randomStatus(rng *rand.Rand, name string) v1.ContainerStatus {
	cs := one(rng,
		running(name), running(name), unready(name), completed(name), v1.ContainerStatus{Name: name},
		waiting(name, one(rng, "", "PodInitializing", "ContainerCreating", "CrashLoopBackOff", "ImagePullBackOff")),
		ended(name, one(rng, "", "", "Completed", "Error", "OOMKilled"), one[int32](rng, 0, 0, 1, 137), one[int32](rng, 0, 0, 9)),
	)
	if rng.IntN(4) == 0 {
		cs.Started, cs.Ready = one(rng, nil, new(false), new(true)), rng.IntN(2) == 0
	}
	return cs
}

func randomRestarts(rng *rand.Rand, cs v1.ContainerStatus) v1.ContainerStatus {
	return restarted(cs, one[int32](rng, 0, 0, 1, 7), one(rng,
		nil, nil,
		&v1.ContainerStateTerminated{FinishedAt: ago(minutes)},
		&v1.ContainerStateTerminated{FinishedAt: ago(hours)},
		&v1.ContainerStateTerminated{FinishedAt: ago(days)},
	))
}
