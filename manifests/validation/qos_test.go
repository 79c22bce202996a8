package validation_test

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/runonce/runonce/internal/podspec"
)

// TestQOSIsTheKubelets: podspec, which may not import the kubelet's own code, finds the class that it
// finds.
func TestQOSIsTheKubelets(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[v1.PodQOSClass]int{}
	for n := range 20_000 {
		pod := &v1.Pod{}
		for range rng.IntN(3) {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Resources: randomResources(rng)})
		}
		for range 1 + rng.IntN(2) {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: randomResources(rng)})
		}
		if rng.IntN(4) == 0 {
			r := randomResources(rng)
			pod.Spec.Resources = &r
		}
		want := qos.ComputePodQOS(pod)
		seen[want]++
		if got := podspec.QOS(pod); got != want {
			t.Fatalf("pod %d: %s, want %s: %+v", n, got, want, pod.Spec)
		}
	}
	if len(seen) != 3 {
		t.Errorf("classes seen: %v", seen)
	}
}

// randomResources are few enough to be equal often.
func randomResources(rng *rand.Rand) v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	style := rng.IntN(4) // nothing, as requested, or anything
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		amount := func() resource.Quantity { return resource.MustParse([]string{"0", "1", "1000m", "2"}[rng.IntN(4)]) }
		switch style {
		case 0:
		case 1, 2:
			r.Requests[name] = resource.MustParse("1")
			r.Limits[name] = resource.MustParse("1000m")
		default:
			if rng.IntN(2) == 0 {
				r.Requests[name] = amount()
			}
			if rng.IntN(2) == 0 {
				r.Limits[name] = amount()
			}
		}
	}
	if rng.IntN(8) == 0 {
		r.Limits["example.com/gpu"] = resource.MustParse("1")
	}
	return r
}
