package cmd

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/internal/podspec"
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
		for _, c := range podspec.Containers(d.Pod) {
			if ref, ok := pulled(c.Image, c.ImagePullPolicy, there); ok {
				wanted[ref] = true
			}
		}
		for _, v := range d.Pod.Spec.Volumes {
			if v.Image == nil {
				continue
			}
			if ref, ok := pulled(v.Image.Reference, v.Image.PullPolicy, there); ok {
				wanted[ref] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(wanted))
}

func pulled(name string, policy v1.PullPolicy, there map[string]bool) (string, bool) {
	ref, err := image.Normalize(name)
	if err != nil {
		return "", false
	}
	pull, err := image.Decide(image.Policy{Ref: name, Pull: policy, Present: there[ref]})
	return ref, err == nil && pull
}
