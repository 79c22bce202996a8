package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runonce"
)

// Usage is the document for what pods use.
type Usage struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // Usage
	Pods       []PodUsage `json:"pods"` // those that run
	Failure
}

// PodUsage is what one pod uses.
type PodUsage struct {
	PodID
	podusage.Pod
}

// NewPodUsage returns what a pod uses.
func NewPodUsage(pod *v1.Pod, used podusage.Pod) PodUsage { return PodUsage{podID(pod), used} }

// The orders of NewUsage that are not by name.
const (
	ByCPU    = "cpu"
	ByMemory = "memory"
)

// NewUsage returns the document for what pods use, by their names or in the order, that of most use first, in which
// the containers of a pod are then, too.
func NewUsage(pods []PodUsage, order string) Usage {
	u := Usage{APIVersion: APIVersion, Kind: "Usage", Pods: append([]PodUsage{}, pods...)}
	slices.SortStableFunc(u.Pods, func(a, b PodUsage) int {
		return cmp.Or(compareUsage(a.Usage, b.Usage, order), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range u.Pods {
		slices.SortStableFunc(u.Pods[i].Containers, func(a, b podusage.Container) int { return compareUsage(a.Usage, b.Usage, order) })
	}
	return u
}

func compareUsage(a, b podusage.Usage, order string) int {
	switch order {
	case ByCPU:
		return cmp.Compare(b.CPUMillicores, a.CPUMillicores)
	case ByMemory:
		return cmp.Compare(b.MemoryBytes, a.MemoryBytes)
	}
	return 0
}

// Table writes a row for each pod, or for each container, as "kubectl top pod" does, with or without titles.
func (u Usage) Table(w io.Writer, containers, titles bool) error {
	t := table{columns: []column{namespaceColumn(), {title: "POD"}}}
	if containers {
		t.columns = append(t.columns, column{title: "CONTAINER"})
	}
	t.columns = append(t.columns, column{title: "CPU(cores)"}, column{title: "MEMORY(bytes)"})
	for _, pod := range u.Pods {
		if !containers {
			t.add(pod.Namespace, pod.Name, cpuText(pod.Usage), memoryText(pod.Usage))
			continue
		}
		for _, c := range pod.Containers {
			t.add(pod.Namespace, pod.Name, c.Name, cpuText(c.Usage), memoryText(c.Usage))
		}
	}
	t.trim()
	if !titles {
		t.columns = nil
	}
	_, err := io.WriteString(w, t.text())
	return err
}

// cpuText and memoryText are as "kubectl top" prints them (k8s.io/kubectl/pkg/metricsutil).
func cpuText(u podusage.Usage) string    { return fmt.Sprintf("%dm", u.CPUMillicores) }
func memoryText(u podusage.Usage) string { return fmt.Sprintf("%dMi", u.MemoryBytes/(1<<20)) }

// sumUsage returns for a row what the containers have used of processors together, and the most memory that one of them
// has used; empty if nothing is known.
func sumUsage(containers []runonce.Container) (cpu, peak string) {
	var sum podusage.Total
	for i := range containers {
		used := containers[i].Usage
		if s := used.CPUSeconds; s != nil {
			sum.CPUSeconds = new(*s + *cmp.Or(sum.CPUSeconds, new(float64)))
		}
		if p := used.PeakMemoryBytes; p != nil {
			sum.PeakMemoryBytes = new(max(*p, *cmp.Or(sum.PeakMemoryBytes, new(int64))))
		}
	}
	return secondsText(sum), peakText(sum)
}

// secondsText is the time on processors, and peakText the most memory, "" if it is not known.
func secondsText(t podusage.Total) string {
	if t.CPUSeconds == nil {
		return ""
	}
	return Elapsed(time.Duration(*t.CPUSeconds * float64(time.Second)))
}

func peakText(t podusage.Total) string { return bytesText(t.PeakMemoryBytes) }

// bytesText is a size in the largest unit of which there is one, rounded up; "" if it is not known.
func bytesText(bytes *int64) string {
	switch {
	case bytes == nil:
		return ""
	case *bytes >= 1<<20:
		return fmt.Sprintf("%dMi", (*bytes+1<<20-1)>>20)
	}
	return fmt.Sprintf("%dKi", (*bytes+1<<10-1)>>10)
}

// killLines says in which containers of the pod processes were killed for want of memory, which an exit code may not show.
func killLines(pod *v1.Pod, containers []runonce.Container) []string {
	var lines []string
	for i := range containers {
		c := &containers[i]
		n := c.Usage.Killed()
		if n == 0 {
			continue
		}
		processes, end := "processes", "still runs"
		if n == 1 {
			processes = "process"
		}
		if c.State != "Running" && c.ExitCode != nil {
			end = "exited with " + strconv.Itoa(int(*c.ExitCode))
		}
		lines = append(lines, fmt.Sprintf("container %q: the kernel's OOM killer ended %d %s in it (%s); the container itself %s",
			c.Name, n, processes, memoryLimit(pod, c.Name), end))
	}
	return lines
}

// memoryLimit is that of the container, or else of its pod.
func memoryLimit(pod *v1.Pod, container string) string {
	if c := podspec.Container(pod, container); c != nil {
		if limit, ok := c.Resources.Limits[v1.ResourceMemory]; ok {
			return "limit " + limit.String()
		}
	}
	if pod.Spec.Resources != nil {
		if limit, ok := pod.Spec.Resources.Limits[v1.ResourceMemory]; ok {
			return "limit of the pod " + limit.String()
		}
	}
	return "it has no limit"
}
