package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// networkStatus is the annotation with the pod's networks (see runtime/network).
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// Pods is the document for the pods of earlier runs.
type Pods struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Pods
	Pods       []Pod  `json:"pods"`
	Failure
}

// Pod is one pod of an earlier run.
type Pod struct {
	PodID
	Phase      v1.PodPhase    `json:"phase"`
	Reason     string         `json:"reason"` // of the phase, in one word; often empty
	PodIPs     []string       `json:"podIPs"`
	Containers []PodContainer `json:"containers"` // init containers first
	// Annotations are those that a cluster would have set: the network status of a pod that is
	// connected to several networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Status is the pod's status as in the Kubernetes API, version v1.
	Status v1.PodStatus `json:"status"`
}

// PodContainer is the state of one container.
type PodContainer struct {
	Name     string `json:"name"`
	Init     bool   `json:"init"`
	State    string `json:"state"`                          // Waiting, Running or Terminated
	Ready    bool   `json:"ready"`                          // probed just now, if it has a readiness probe
	Reason   string `json:"reason"`                         // why it waits, or how it ended
	ExitCode *int32 `json:"exitCode" jsonschema:"nullable"` // of the current or last termination; null if it never ended
	Restarts int    `json:"restarts"`
}

// NewPods returns the document for pods with their status.
func NewPods(pods []*v1.Pod) Pods {
	out := Pods{APIVersion: APIVersion, Kind: "Pods", Pods: make([]Pod, 0, len(pods))}
	for _, pod := range pods {
		p := Pod{
			PodID: podID(pod), Phase: pod.Status.Phase, Reason: pod.Status.Reason, PodIPs: podIPs(pod.Status),
			Containers: []PodContainer{}, Status: pod.Status,
		}
		if status, ok := pod.Annotations[networkStatus]; ok {
			p.Annotations = map[string]string{networkStatus: status}
		}
		for _, cs := range pod.Status.InitContainerStatuses {
			p.Containers = append(p.Containers, newPodContainer(cs, true))
		}
		for _, cs := range pod.Status.ContainerStatuses {
			p.Containers = append(p.Containers, newPodContainer(cs, false))
		}
		out.Pods = append(out.Pods, p)
	}
	return out
}

func newPodContainer(cs v1.ContainerStatus, init bool) PodContainer {
	c := PodContainer{Name: cs.Name, Init: init, Ready: cs.Ready, Restarts: int(cs.RestartCount)}
	c.State, c.ExitCode = podspec.ContainerState(cs)
	switch state := cs.State; {
	case state.Terminated != nil:
		c.Reason = state.Terminated.Reason
	case state.Waiting != nil:
		c.Reason = state.Waiting.Reason
	}
	return c
}

// Table writes one row for each pod, or in the wide style one for each container, with ages
// at now.
func (p Pods) Table(w io.Writer, s Style, now time.Time) error {
	t := table{color: s.Color}
	if s.Wide {
		t.columns = columns("NAMESPACE", "POD", "PHASE", "CONTAINER", "STATE", "EXIT CODE", "RESTARTS", "AGE", "IP", "REASON")
		t.columns[2].colored = true
		for i := range p.Pods {
			p.Pods[i].addContainers(&t, now)
		}
	} else {
		t.columns = []column{
			namespaceColumn(),
			{title: "POD"},
			{title: "PHASE", colored: true},
			{title: "READY"},
			{title: "RESTARTS", optional: true, usual: []string{"0"}},
			{title: "EXIT CODES", optional: true},
			{title: "AGE"},
			{title: "IP", optional: true, expendable: true},
			{title: "REASON", optional: true},
		}
		for i := range p.Pods {
			t.add(p.Pods[i].cells(now)...)
		}
		t.trim()
	}
	_, err := io.WriteString(w, t.text())
	return err
}

func (p *Pod) cells(now time.Time) []string {
	restarts, reason := 0, p.Reason
	var codes []string
	for _, c := range p.Containers {
		restarts += c.Restarts
		if c.Init && (c.ExitCode == nil || *c.ExitCode == 0) {
			continue
		}
		if c.ExitCode != nil {
			codes = append(codes, fmt.Sprintf("%s=%d", c.Name, *c.ExitCode))
		}
		if reason == "" && c.State != "Running" && c.Reason != "Completed" {
			reason = c.Reason
		}
	}
	ready := fmt.Sprintf("%d/%d", countReady(p.Status), len(p.Status.ContainerStatuses))
	return []string{
		p.Namespace, p.Name, string(p.Phase), ready, strconv.Itoa(restarts), strings.Join(codes, ","), p.age(now),
		strings.Join(p.PodIPs, ","), reason,
	}
}

func (p *Pod) addContainers(t *table, now time.Time) {
	for _, c := range p.Containers {
		code := ""
		if c.ExitCode != nil {
			code = fmt.Sprint(*c.ExitCode)
		}
		t.add(p.Namespace, p.Name, string(p.Phase), c.Name, c.State, code, strconv.Itoa(c.Restarts), p.age(now),
			strings.Join(p.PodIPs, ","), c.Reason)
	}
}

// age is the time since the pod's start, to the second.
func (p *Pod) age(now time.Time) string {
	if p.Status.StartTime == nil {
		return ""
	}
	return max(0, now.Sub(p.Status.StartTime.Time)).Round(time.Second).String()
}
