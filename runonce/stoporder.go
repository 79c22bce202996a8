package runonce

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// InStopOrder calls stop with the index of each of the pods, in parallel, but only after it has returned for
// all that depend on the pod. A deadline of ctx is shared: a pod may use up its part of the time, so that something is
// left for those that are stopped after it.
func InStopOrder(ctx context.Context, pods []*v1.Pod, stop func(ctx context.Context, i int)) {
	before := podspec.Dependents(pods)
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
