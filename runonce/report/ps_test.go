package report_test

import (
	"bytes"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runonce/report"
)

func TestPods(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	start := metav1.NewTime(now.Add(-90 * time.Second))
	web, job := pod("web", "app"), pod("job", "main")
	web.Status = v1.PodStatus{
		Phase: v1.PodRunning, StartTime: &start, PodIPs: []v1.PodIP{{IP: "10.88.0.2"}},
		InitContainerStatuses: []v1.ContainerStatus{{Name: "prepare", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}}},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "app", RestartCount: 2, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
		}},
	}
	job.Status = v1.PodStatus{
		Phase:             v1.PodFailed,
		ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}},
	}
	p := report.NewPods([]*v1.Pod{web, job})
	for file, write := range map[string]func(*bytes.Buffer) error{
		"ps.table": func(b *bytes.Buffer) error { return p.Table(b, report.Style{}, now) },
		"ps.wide":  func(b *bytes.Buffer) error { return p.Table(b, report.Style{Wide: true}, now) },
		"ps.json":  func(b *bytes.Buffer) error { return report.JSON(b, p) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, file, b.Bytes())
	}
}
