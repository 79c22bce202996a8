package cmd

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/image"
)

// pulls names the images that a run of the plan would pull, each once and in order.
// Images that may not be pulled, or cannot be named, fail the run, not the plan.
func pulls(plan admit.Plan, present []backend.Image) []string {
	there := map[string]bool{}
	for _, i := range present {
		there[i.Name] = true
	}
	wanted := map[string]bool{}
	for _, d := range plan.Decisions {
		if d.Verdict != admit.Admitted || d.Running || d.Prune {
			continue
		}
		for _, c := range slices.Concat(d.Pod.Spec.InitContainers, d.Pod.Spec.Containers) {
			if ref, ok := pulled(c, there); ok {
				wanted[ref] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(wanted))
}

func pulled(c v1.Container, there map[string]bool) (string, bool) {
	ref, err := image.Normalize(c.Image)
	if err != nil {
		return "", false
	}
	pull, err := image.Decide(image.Policy{Ref: c.Image, Pull: c.ImagePullPolicy, Present: there[ref]})
	return ref, err == nil && pull
}
