package report_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runonce/report"
)

func TestUsageTable(t *testing.T) {
	t.Parallel()
	of := func(namespace, name string, all ...podusage.Container) report.PodUsage {
		used := podusage.Pod{Containers: all}
		used.Usage = used.Sum()
		return report.NewPodUsage(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, used)
	}
	c := func(name string, cpu, mib int64) podusage.Container {
		return podusage.Container{Name: name, Usage: podusage.Usage{CPUMillicores: cpu, MemoryBytes: mib<<20 + 5}}
	}
	web := func(namespace string) report.PodUsage {
		return of(namespace, "web", c("main", 250, 30), c("side", 1, 64))
	}
	for _, tt := range []struct {
		name               string
		pods               []report.PodUsage
		order              string
		containers, titles bool
		want               string
	}{
		{"by name", []report.PodUsage{web("default"), of("default", "db", c("pg", 12, 900))}, "", false, true, `
POD  CPU(cores)  MEMORY(bytes)
db   12m         900Mi
web  251m        94Mi
`},
		{"by cpu", []report.PodUsage{of("b", "db", c("pg", 12, 900)), web("a")}, report.ByCPU, false, true, `
NAMESPACE  POD  CPU(cores)  MEMORY(bytes)
a          web  251m        94Mi
b          db   12m         900Mi
`},
		{"containers by memory", []report.PodUsage{web("default"), of("default", "db", c("pg", 12, 900))}, report.ByMemory, true, true, `
POD  CONTAINER  CPU(cores)  MEMORY(bytes)
db   pg         12m         900Mi
web  side       1m          64Mi
web  main       250m        30Mi
`},
		{"no titles", []report.PodUsage{web("default")}, "", true, false, `
web  main  250m  30Mi
web  side  1m    64Mi
`},
		{"nothing runs", nil, "", false, true, "\nPOD  CPU(cores)  MEMORY(bytes)\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if err := report.NewUsage(tt.pods, tt.order).Table(&b, tt.containers, tt.titles); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
