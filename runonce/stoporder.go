package runonce

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
)

// StopGroup is a group of pods that are stopped at the same time: those with this priority or a higher one, up to that of the
// next group.
type StopGroup struct {
	Priority int32
	// Grace limits the grace periods of its pods, 0 for no limit.
	Grace time.Duration
}

// StopGroups are groups by ascending priority, of which each is stopped after the one before. The first has the pods of lower
// priorities as well. They follow the kubelet's graceful node shutdown (pkg/kubelet/nodeshutdown). Without groups, the priority
// does not matter.
type StopGroups []StopGroup

// CriticalLast has critical pods stopped after all others.
func CriticalLast() StopGroups {
	return StopGroups{{Priority: 0}, {Priority: admit.SystemCritical}}
}

// ParseStopGroups parses PRIORITY=DURATION,..., as the kubelet's shutdownGracePeriodByPodPriority.
func ParseStopGroups(text string) (StopGroups, error) {
	var groups StopGroups
	for pair := range strings.SplitSeq(text, ",") {
		priority, grace, ok := strings.Cut(strings.TrimSpace(pair), "=")
		n, err := strconv.ParseInt(priority, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q: must be PRIORITY=DURATION", pair)
		}
		d, err := time.ParseDuration(grace)
		if err != nil || d < time.Second {
			return nil, fmt.Errorf("%q: must be PRIORITY=DURATION, of at least 1s", pair)
		}
		if slices.ContainsFunc(groups, func(g StopGroup) bool { return g.Priority == int32(n) }) {
			return nil, fmt.Errorf("%q: there are two durations for this priority", pair)
		}
		groups = append(groups, StopGroup{int32(n), d})
	}
	slices.SortFunc(groups, func(a, b StopGroup) int { return cmp.Compare(a.Priority, b.Priority) })
	return groups, nil
}

// of returns the number of the pod's group.
func (g StopGroups) of(pod *v1.Pod) int {
	n := 0
	for i := range g {
		if admit.Priority(pod) >= g[i].Priority {
			n = i
		}
	}
	return n
}

// Grace returns the limit of the pod's grace period, 0 for none.
func (g StopGroups) Grace(pod *v1.Pod) time.Duration {
	if len(g) == 0 {
		return 0
	}
	return g[g.of(pod)].Grace
}

// order adds to the pods that each one waits for those of the groups before its own. Dependencies win: a pod is stopped no
// earlier than the last of those that it waits for.
func (g StopGroups) order(pods []*v1.Pod, before [][]int) [][]int {
	if len(g) == 0 {
		return before
	}
	groups := make([]int, len(pods))
	var group func(i int) int
	group = func(i int) int {
		if groups[i] == 0 {
			groups[i] = 1 + g.of(pods[i])
			for _, other := range before[i] {
				groups[i] = max(groups[i], group(other))
			}
		}
		return groups[i]
	}
	for i := range pods {
		group(i)
	}
	all := make([][]int, len(pods))
	for i := range pods {
		all[i] = slices.Clone(before[i])
		for other := range pods {
			if groups[other] < groups[i] {
				all[i] = append(all[i], other)
			}
		}
	}
	return all
}

// InStopOrder calls stop with the index of each of the pods, in parallel, but only after it has returned for
// all that depend on the pod, and for the groups before its own. A deadline of ctx is shared: a pod may use up its part of the
// time, so that something is left for those that are stopped after it.
func InStopOrder(ctx context.Context, pods []*v1.Pod, groups StopGroups, stop func(ctx context.Context, i int)) {
	before := groups.order(pods, podspec.Dependents(pods))
	steps := stepsFrom(before)
	done := make([]chan struct{}, len(pods))
	for i := range pods {
		done[i] = make(chan struct{})
	}
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			defer close(done[i])
			for _, other := range before[i] {
				<-done[other]
			}
			part, cancel := partOf(ctx, steps[i])
			defer cancel()
			stop(part, i)
		})
	}
	wg.Wait()
}

// partOf returns a context for the first of several steps, which has its part of the time that is left.
func partOf(ctx context.Context, steps int) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok || steps == 1 {
		return ctx, func() {}
	}
	part := time.Until(end) / time.Duration(steps)
	return context.WithTimeoutCause(ctx, part, fmt.Errorf("its part of the time, %s, has passed", part.Round(time.Second)))
}

// stepsFrom returns for each pod how many are stopped one after the other, it and those that have to wait for it.
// before has the pods that each of them waits for, without cycles.
func stepsFrom(before [][]int) []int {
	after := make([][]int, len(before))
	for i, others := range before {
		for _, other := range others {
			after[other] = append(after[other], i)
		}
	}
	steps := make([]int, len(before))
	var count func(i int) int
	count = func(i int) int {
		if steps[i] == 0 {
			longest := 0
			for _, next := range after[i] {
				longest = max(longest, count(next))
			}
			steps[i] = 1 + longest
		}
		return steps[i]
	}
	for i := range before {
		count(i)
	}
	return steps
}
