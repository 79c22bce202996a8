package podstate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func limited(volume, main, second string) *v1.Pod {
	limits := func(s string) v1.ResourceRequirements {
		if s == "" {
			return v1.ResourceRequirements{}
		}
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(s)}}
	}
	p := &v1.Pod{Spec: v1.PodSpec{
		Volumes:    []v1.Volume{{Name: "mem", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}},
		Containers: []v1.Container{{Name: "main", Resources: limits(main)}, {Name: "second", Resources: limits(second)}},
	}}
	work := v1.Volume{Name: "work", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
	if volume != "" {
		size := resource.MustParse(volume)
		p.Spec.Volumes[0].EmptyDir.SizeLimit, work.EmptyDir.SizeLimit = &size, &size
	}
	p.Spec.Volumes = append(p.Spec.Volumes, work)
	return p
}

// TestStorageExceeded checks the order and the messages against the kubelet's.
func TestStorageExceeded(t *testing.T) {
	t.Parallel()
	const mi = 1 << 20
	use := func(work, main, second int64) StorageUsage {
		return StorageUsage{Volumes: map[string]int64{"work": work}, Containers: map[string]int64{"main": main, "second": second}}
	}
	critical := limited("1Mi", "", "")
	priority := int32(2_000_000_000)
	critical.Spec.Priority = &priority
	for _, tt := range []struct {
		name    string
		pod     *v1.Pod
		used    StorageUsage
		want    string
		without bool // no limit
	}{
		{name: "no limit", pod: limited("", "", ""), used: use(100*mi, 100*mi, 0), without: true},
		{name: "critical", pod: critical, without: true},
		{name: "volume within its limit", pod: limited("1Mi", "", ""), used: use(mi, 0, 0)},
		{name: "volume beyond its limit", pod: limited("1Mi", "", ""), used: use(mi+1, 0, 0), want: `Usage of EmptyDir volume "work" exceeds the limit "1Mi". `},
		{name: "the only limit counts for the pod", pod: limited("", "2Mi", ""), used: use(0, 3*mi, 0), want: "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "},
		{name: "containers beyond their sum", pod: limited("", "2Mi", "2Mi"), used: use(2*mi, mi, 2*mi), want: "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. "},
		{name: "one container beyond its limit, not the sum", pod: limited("", "2Mi", "2Mi"), used: use(0, 3*mi, 0), want: `Container main exceeded its local ephemeral storage limit "2Mi". `},
		{name: "the volume first", pod: limited("1Mi", "1Mi", "1Mi"), used: use(9*mi, 9*mi, 9*mi), want: `Usage of EmptyDir volume "work" exceeds the limit "1Mi". `},
		{name: "all within", pod: limited("4Mi", "4Mi", "4Mi"), used: use(2*mi, 2*mi, 2*mi)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if LimitsStorage(tt.pod) == tt.without {
				t.Errorf("limited: %v", !tt.without)
			}
			if got := StorageExceeded(tt.pod, tt.used); !tt.without && got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
