package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runonce"
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
	Phase  v1.PodPhase `json:"phase"`
	Reason string      `json:"reason"` // of the phase, in one word; often empty
	// Outcome is what the last run has decided about the pod. It is left out on a cluster, and while a
	// run has not decided yet, or was killed before it did.
	Outcome       runonce.Outcome `json:"outcome,omitempty"`
	OutcomeReason string          `json:"outcomeReason,omitempty"` // in one word; often empty
	Message       string          `json:"message,omitempty"`       // of the outcome, or else of the phase, for people
	DecidedAt     *metav1.Time    `json:"decidedAt,omitempty"`     // when that was
	// NeverStarted says that the last run of the pod's manifest has not started it, and that nothing else is known of
	// it than what that run has decided. Such pods are listed with --all only.
	NeverStarted bool `json:"neverStarted,omitempty"`
	// Watched says that the containers are restarted as their policies say: a run or watch of the pod
	// goes on, or a kubelet runs it.
	Watched bool `json:"watched"`
	// Node is the name of the node that has started it, left out if that is not known.
	Node       string            `json:"node,omitempty"`
	Priority   *int32            `json:"priority,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	PodIPs     []string          `json:"podIPs"`
	Ports      []Port            `json:"ports,omitempty"` // of the machine that lead to the pod, if it runs
	Containers []PodContainer    `json:"containers"`      // init containers first
	// PodEvents are the events of the pod, those that have happened last at the end. They are left out on a cluster.
	PodEvents []podevent.Event `json:"podEvents,omitempty"`
	// Annotations are those that a cluster would have set: the network status of a pod that is
	// connected to several networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Status is the pod's status as in the Kubernetes API, version v1.
	Status v1.PodStatus `json:"status"`

	state PodState
}

// PodContainer is the state of one container.
type PodContainer struct {
	Name       string `json:"name"`
	Init       bool   `json:"init"`
	Sidecar    bool   `json:"sidecar,omitempty"`
	Image      string `json:"image"`                          // as the manifest names it
	ImageID    string `json:"imageID,omitempty"`              // as the status has it: of the configuration, on a cluster often the digest
	State      string `json:"state"`                          // Waiting, Running or Terminated
	Ready      bool   `json:"ready"`                          // probed just now, if it has a readiness probe
	Reason     string `json:"reason"`                         // why it waits, or how it ended
	ExitCode   *int32 `json:"exitCode" jsonschema:"nullable"` // of the current or last termination; null if it never ended
	ExitReason string `json:"exitReason,omitempty"`           // how it ended then: Completed, Error, OOMKilled, StartError, ...
	Restarts   int    `json:"restarts"`
	// Usage is what the current or last instance has used, as far as the kernel tells; left out if nothing is known.
	Usage   podusage.Total `json:"usage,omitzero"`
	LogPath string         `json:"logPath,omitempty"` // of the current or last instance
}

// PodState is what is known of a pod of an earlier run.
type PodState struct {
	Pod        *v1.Pod             // with its status
	Containers []runonce.Container // init containers first
	Watched    bool                // see Pod
	Node       string              // the name of the machine that has started it, "" if the pod has it or it is not known
	// What the last run has decided; empty if that is not known.
	Outcome         runonce.Outcome
	Reason, Message string
	DecidedAt       time.Time
	NeverStarted    bool // see Pod
	Events          []podevent.Event
	// Named says that the user has asked for this pod: the table has all details of it.
	Named bool
}

// NewPods returns the document for the pods.
func NewPods(states []PodState) Pods {
	out := Pods{APIVersion: APIVersion, Kind: "Pods", Pods: make([]Pod, 0, len(states))}
	for _, s := range states {
		out.Pods = append(out.Pods, newPod(s))
	}
	return out
}

func newPod(s PodState) Pod {
	pod, st := s.Pod, s.Pod.Status
	p := Pod{
		PodID: podID(pod), Phase: st.Phase, Reason: st.Reason, Message: st.Message, Watched: s.Watched,
		Node: cmp.Or(s.Node, pod.Spec.NodeName), Priority: pod.Spec.Priority, Labels: pod.Labels,
		PodIPs: podIPs(st), Ports: portsOf(pod, st), Containers: []PodContainer{}, PodEvents: s.Events, NeverStarted: s.NeverStarted, Status: st, state: s,
	}
	if s.Outcome != "" {
		p.Outcome, p.OutcomeReason, p.DecidedAt = s.Outcome, s.Reason, &metav1.Time{Time: s.DecidedAt}
		p.Message = cmp.Or(s.Message, st.Message)
	}
	if status, ok := pod.Annotations[networkStatus]; ok {
		p.Annotations = map[string]string{networkStatus: status}
	}
	for _, cs := range st.InitContainerStatuses {
		p.addContainer(cs, true)
	}
	for _, cs := range st.ContainerStatuses {
		p.addContainer(cs, false)
	}
	return p
}

func (p *Pod) addContainer(cs v1.ContainerStatus, init bool) {
	c := PodContainer{Name: cs.Name, Init: init, Image: cs.Image, ImageID: cs.ImageID, Ready: cs.Ready, Restarts: int(cs.RestartCount)}
	c.State, c.ExitCode = podspec.ContainerState(cs)
	if def := podspec.Container(p.state.Pod, cs.Name); def != nil {
		c.Sidecar, c.Image = init && podspec.IsSidecar(def), def.Image
	}
	if end := podspec.LastTermination(cs); end != nil {
		c.ExitReason = end.Reason
	}
	switch state := cs.State; {
	case state.Terminated != nil:
		c.Reason = state.Terminated.Reason
	case state.Waiting != nil:
		c.Reason = state.Waiting.Reason
	}
	for _, one := range p.state.Containers {
		if one.Name == c.Name {
			c.LogPath, c.Usage = one.LogPath, one.Usage
		}
	}
	p.Containers = append(p.Containers, c)
}

// Table writes one row for each pod, or in the wide style one for each container, with ages
// at now. Below the table are the messages that have no room in it, and all details of the pods that
// the user has asked for.
func (p Pods) Table(w io.Writer, s Style, now time.Time) error {
	rows := make([]row, 0, len(p.Pods))
	for i := range p.Pods {
		rows = append(rows, p.Pods[i].row(now))
	}
	var b strings.Builder
	if s.Wide {
		b.WriteString(p.wide(s, rows, now))
	} else {
		p.dropOutcomes(rows)
		b.WriteString(podRows(s, p.columns(), rows))
	}
	for i := range rows {
		rows[i].details(&b, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// outcomeColumn is the index of the column of outcomes in a table that is not wide.
const outcomeColumn = 3

func (Pods) columns() []column {
	return []column{
		namespaceColumn(),
		{title: "POD"},
		{title: "PHASE", colored: true},
		outcomeColumn: {title: "OUTCOME", optional: true, colored: true},
		{title: "READY"},
		{title: "RESTARTS", optional: true, usual: []string{"0"}},
		{title: "EXIT CODES", optional: true},
		{title: "AGE"},
		{title: "IP", optional: true, expendable: true},
		{title: "PORTS", optional: true},
	}
}

// dropOutcomes empties the column of outcomes if all of them say the same as the phases.
func (p Pods) dropOutcomes(rows []row) {
	differs := func(pod Pod) bool {
		o := pod.outcome()
		return o != "" && o != pod.phase() && !(o == string(runonce.Ready) && pod.phase() == string(v1.PodRunning))
	}
	if slices.ContainsFunc(p.Pods, differs) {
		return
	}
	for _, r := range rows {
		r.cells[outcomeColumn] = ""
	}
}

func (p *Pod) row(now time.Time) row {
	restarts := 0
	for _, c := range p.Containers {
		restarts += c.Restarts
	}
	reason, message := p.why()
	r := row{
		PodID: p.PodID, word: p.phase(), reason: reason, message: join("; ", messageOf(reason, message, ""), p.hook()),
		cells: []string{
			p.Namespace, p.Name, p.phase(), p.outcome(), p.ready(),
			strconv.Itoa(restarts), p.exitCodes(reason), p.age(now), strings.Join(p.PodIPs, ","), p.publishedPorts(),
		},
	}
	if p.gaveUp() {
		r.word = string(p.Outcome)
	}
	if p.state.Named {
		r.problem, r.message, r.more = true, p.decision(now), p.details()
	}
	if kills := killLines(p.state.Pod, p.state.Containers); len(kills) > 0 {
		// Where nothing else is wrong, the message says less than the lines.
		r.more, r.complete = append(kills, r.more...), reason == podspec.ReasonOOMKilled && !p.state.Named && p.Outcome.AtGoal()
	}
	return r
}

// publishedPorts returns the ports of a pod of which some were chosen for it.
func (p *Pod) publishedPorts() string {
	if p.state.Pod.Annotations[podspec.AnnotationPublish] == "" {
		return ""
	}
	return portCell(p.Ports)
}

// wide returns a table of containers. The rows of the pods are for the details below it.
func (p Pods) wide(s Style, rows []row, now time.Time) string {
	t := table{color: s.Color, columns: columns(
		"NAMESPACE", "POD", "PHASE", "OUTCOME", "CONTAINER", "STATE", "READY", "EXIT CODE", "RESTARTS", "AGE", "IP", "NODE", "IMAGE",
		"REASON", "LOG", "CPU", "PEAK MEMORY", "MESSAGE",
	)}
	t.columns[2].colored, t.columns[3].colored = true, true
	for i := range p.Pods {
		pod := &p.Pods[i]
		rows[i].complete = !pod.state.Named
		for n := range pod.Containers {
			c := &pod.Containers[n]
			state, reason := pod.containerState(c)
			code := c.exitText(reason)
			if c.Sidecar && pod.Phase == v1.PodSucceeded && reason == "Error" {
				reason = ""
			}
			t.add(pod.Namespace, pod.Name, pod.phase(), string(pod.Outcome), c.Name, state, strconv.FormatBool(c.Ready), code, strconv.Itoa(c.Restarts),
				pod.age(now), strings.Join(pod.PodIPs, ","), pod.Node, c.Image, reason, c.LogPath, secondsText(c.Usage), peakText(c.Usage), pod.decision(now))
		}
		if pod.NeverStarted {
			t.add(pod.Namespace, pod.Name, pod.phase(), string(pod.Outcome), "", "", "", "", "", pod.age(now), "", "", "", pod.OutcomeReason, "", pod.decision(now))
		}
	}
	return t.text()
}

// ready says how many of the containers are ready.
func (p *Pod) ready() string {
	if p.NeverStarted {
		return ""
	}
	return fmt.Sprintf("%d/%d", countReady(p.Status), len(p.Status.ContainerStatuses))
}

// age is the time since the pod's start, or since it was decided not to start it, to the second.
func (p *Pod) age(now time.Time) string {
	since := p.Status.StartTime
	if p.NeverStarted {
		since = p.DecidedAt
	}
	if since == nil {
		return ""
	}
	return max(0, now.Sub(since.Time)).Round(time.Second).String()
}

// ago is the time since then for people.
func ago(now, then time.Time) string {
	return duration.HumanDuration(max(0, now.Sub(then))) + " ago"
}
