package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podusage"
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
