package report

import (
	"io"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// networkStatus is the annotation that tells how a pod is connected to several networks.
const networkStatus = "k8s.v1.cni.cncf.io/network-status"

// Pods is what there is of earlier runs.
type Pods struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Pods
	Pods       []Pod  `json:"pods"`
}

// Pod is one pod of an earlier run.
type Pod struct {
	Namespace  string         `json:"namespace"`
	Name       string         `json:"name"`
	UID        string         `json:"uid"`
	Source     string         `json:"source"`
	Phase      v1.PodPhase    `json:"phase"`
	Reason     string         `json:"reason"`
	PodIPs     []string       `json:"podIPs"`
	Containers []PodContainer `json:"containers"`
	// Annotations are those that a cluster would have put on the pod while it runs: its
	// network status, where it has joined several networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	Status      v1.PodStatus      `json:"status"`
}

// PodContainer is the state of one container.
type PodContainer struct {
	Name     string `json:"name"`
	Init     bool   `json:"init"`
	State    string `json:"state"`    // Waiting, Running or Terminated
	Ready    bool   `json:"ready"`    // asked just now, if it has a readiness probe
	Reason   string `json:"reason"`   // why it waits, or how it ended
	ExitCode *int32 `json:"exitCode"` // of the current or last end; null when it never ended
	Restarts int    `json:"restarts"`
}

// NewPods returns the document for pods whose status is filled in.
func NewPods(pods []*v1.Pod) Pods {
	out := Pods{APIVersion: APIVersion, Kind: "Pods", Pods: make([]Pod, 0, len(pods))}
	for _, pod := range pods {
		p := Pod{
			Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Source: pod.Annotations[podspec.AnnotationSource],
			Phase: pod.Status.Phase, Reason: pod.Status.Reason, PodIPs: []string{}, Containers: []PodContainer{}, Status: pod.Status,
		}
		if status, ok := pod.Annotations[networkStatus]; ok {
			p.Annotations = map[string]string{networkStatus: status}
		}
		for _, ip := range pod.Status.PodIPs {
			p.PodIPs = append(p.PodIPs, ip.IP)
		}
		for _, cs := range pod.Status.InitContainerStatuses {
			p.Containers = append(p.Containers, containerOf(cs, true))
		}
		for _, cs := range pod.Status.ContainerStatuses {
			p.Containers = append(p.Containers, containerOf(cs, false))
		}
		out.Pods = append(out.Pods, p)
	}
	return out
}

func containerOf(cs v1.ContainerStatus, init bool) PodContainer {
	c := PodContainer{Name: cs.Name, Init: init, State: "Waiting", Ready: cs.Ready, Restarts: int(cs.RestartCount)}
	end := cs.LastTerminationState.Terminated
	switch {
	case cs.State.Running != nil:
		c.State = "Running"
	case cs.State.Terminated != nil:
		c.State, end = "Terminated", cs.State.Terminated
		c.Reason = end.Reason
	case cs.State.Waiting != nil:
		c.Reason = cs.State.Waiting.Reason
	}
	if end != nil {
		code := end.ExitCode
		c.ExitCode = &code
	}
	return c
}

// Table writes one row for each pod, or in the wide style one for each container. now
// dates the ages.
func (p Pods) Table(w io.Writer, s Style, now time.Time) error {
	t := table{color: s.Color, paint: 2}
	if s.Wide {
		t.head("NAMESPACE", "POD", "PHASE", "CONTAINER", "STATE", "EXIT CODE", "RESTARTS", "AGE", "IP", "REASON")
	} else {
		t.head("NAMESPACE", "POD", "PHASE", "READY", "RESTARTS", "EXIT CODES", "AGE", "IP", "REASON")
	}
	for i := range p.Pods {
		if s.Wide {
			p.Pods[i].wide(&t, now)
			continue
		}
		t.add(p.Pods[i].cells(now)...)
	}
	return t.write(w)
}

func (p *Pod) cells(now time.Time) []string {
	ready, restarts := 0, 0
	for _, cs := range p.Status.ContainerStatuses {
		if cs.Ready {
			ready++
		}
	}
	var codes []string
	why := p.Reason
	for _, c := range p.Containers {
		restarts += c.Restarts
		if c.Init && (c.ExitCode == nil || *c.ExitCode == 0) {
			continue
		}
		if c.ExitCode != nil {
			codes = append(codes, c.Name+"="+strconv.Itoa(int(*c.ExitCode)))
		}
		if why == "" && c.State != "Running" && c.Reason != "Completed" {
			why = c.Reason
		}
	}
	return []string{
		dash(p.Namespace), dash(p.Name), dash(string(p.Phase)),
		strconv.Itoa(ready) + "/" + strconv.Itoa(len(p.Status.ContainerStatuses)), strconv.Itoa(restarts),
		dash(strings.Join(codes, ",")), p.age(now), dash(strings.Join(p.PodIPs, ",")), dash(why),
	}
}

func (p *Pod) wide(t *table, now time.Time) {
	for _, c := range p.Containers {
		code := "-"
		if c.ExitCode != nil {
			code = strconv.Itoa(int(*c.ExitCode))
		}
		t.add(dash(p.Namespace), dash(p.Name), dash(string(p.Phase)), c.Name, c.State, code,
			strconv.Itoa(c.Restarts), p.age(now), dash(strings.Join(p.PodIPs, ",")), dash(c.Reason))
	}
}

// age is the time since the pod's start, to the second.
func (p *Pod) age(now time.Time) string {
	if p.Status.StartTime == nil {
		return "-"
	}
	return max(0, now.Sub(p.Status.StartTime.Time)).Round(time.Second).String()
}
