// Package report writes the results of a run: as a table for people, as JSON, YAML and JUnit
// for programs. The field names are stable: fields may be added, never renamed.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/runonce"
)

// APIVersion is the version of every document that this package writes.
const APIVersion = "runonce/v1"

// Report is the document for the results of a run.
type Report struct {
	APIVersion     string   `json:"apiVersion"`
	Kind           string   `json:"kind"`           // Report
	ExitCode       int      `json:"exitCode"`       // of the program
	ElapsedSeconds float64  `json:"elapsedSeconds"` // of the whole run
	Results        []Result `json:"results"`        // one for each pod
	// Runtime is the OCI runtime of new containers of pods without a RuntimeClass, on a machine.
	Runtime *Runtime `json:"runtime,omitempty"`
	Failure
}

// Runtime is an OCI runtime, and why it is that one.
type Runtime struct {
	Path   string `json:"path"`
	Reason string `json:"reason"` // for people
}

// Failure is why a command could not do its work. Its documents have no results then.
type Failure struct {
	Faults decode.Diagnostics `json:"faults,omitempty"` // the errors of the manifests
	Error  string             `json:"error,omitempty"`  // any other error
}

// PodID identifies a pod in every document.
type PodID struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Source    string `json:"source"` // file:line
}

// Result is the result of one pod.
type Result struct {
	PodID
	Outcome        runonce.Outcome     `json:"outcome"`
	Reason         string              `json:"reason"`         // of the outcome, in one word; often empty
	Message        string              `json:"message"`        // of the outcome, for people
	Attempts       int                 `json:"attempts"`       // to start the pod: the first one, retries after errors, restarts
	Restarts       int                 `json:"restarts"`       // of all containers together
	ElapsedSeconds float64             `json:"elapsedSeconds"` // from the start of the run to the outcome
	PodIPs         []string            `json:"podIPs"`
	Ports          []Port              `json:"ports,omitempty"` // of the machine that lead to the pod, if it runs
	Phases         []Phase             `json:"phases"`          // the steps of the pod's start
	Containers     []runonce.Container `json:"containers"`      // init containers first
	// Annotations are those that a cluster would have set while the pod ran: its network
	// status, if it is connected to several networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Events are the last ones of a pod that is not where it should be, the oldest first, each in a line for people;
	// on a machine only the warnings that say more than the message.
	Events []string `json:"events,omitempty"`
	// PodEvents are the events of the pod, those that have happened last at the end; on a cluster only of a pod that is
	// not where it should be.
	PodEvents   []podevent.Event `json:"podEvents"`
	PreemptedBy string           `json:"preemptedBy,omitempty"` // namespace/name
	RemoveError string           `json:"removeError,omitempty"` // why the pod could not be removed
	// Optional says that the exit code does not depend on the pod.
	Optional bool `json:"optional,omitempty"`
	// EarlierRun says that an earlier run has started all of the pod, and this one nothing.
	EarlierRun bool `json:"earlierRun,omitempty"`
	// FinishedAt is when the pod ended in an earlier run.
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Status is the pod's status as in the Kubernetes API, version v1.
	Status v1.PodStatus `json:"status"`

	pod SavedPod
}

// Phase is one step of a pod's start.
type Phase struct {
	Name         string  `json:"name"`
	StartSeconds float64 `json:"startSeconds"` // since the start of the run
	Seconds      float64 `json:"seconds"`
}

// New returns the report on the results, in their order. elapsed is the time of the whole run.
func New(results []runonce.Result, exitCode int, elapsed time.Duration) Report {
	r := Report{
		APIVersion: APIVersion, Kind: "Report", ExitCode: exitCode,
		ElapsedSeconds: seconds(elapsed), Results: make([]Result, 0, len(results)),
	}
	for i := range results {
		r.Results = append(r.Results, newResult(&results[i]))
	}
	return r
}

func newResult(in *runonce.Result) Result {
	out := Result{
		PodID: podID(in.Pod), Outcome: in.Outcome, Reason: in.Reason, Message: in.Message,
		Attempts: in.Attempts, Restarts: in.Restarts, ElapsedSeconds: seconds(in.Elapsed),
		PodIPs: podIPs(in.Status), Phases: []Phase{}, Containers: append([]runonce.Container{}, in.Containers...),
		PreemptedBy: podspec.FullName(in.By), RemoveError: in.RemoveError, Status: in.Status,
		Annotations: in.Annotations, Events: in.EventLines, PodEvents: append([]podevent.Event{}, in.Events...), EarlierRun: in.EarlierRun,
		Optional: podspec.IsOptional(in.Pod),
	}
	if !in.Finished.IsZero() {
		out.FinishedAt = &metav1.Time{Time: in.Finished}
	}
	if in.Pod != nil {
		out.Ports = portsOf(in.Pod, in.Status)
		out.pod = SavedPod{
			Containers: len(in.Pod.Spec.Containers), Labels: in.Pod.Labels, Owners: in.Pod.OwnerReferences, Kills: killLines(in.Pod, in.Containers),
		}
	}
	for _, p := range in.Phases {
		out.Phases = append(out.Phases, Phase{Name: p.Name, StartSeconds: seconds(p.Start), Seconds: seconds(p.Elapsed)})
	}
	for i := range out.Containers {
		if c := &out.Containers[i]; c.LogTail == nil {
			c.LogTail = []string{}
		}
	}
	return out
}

// podID returns the identity of the pod, which may be nil.
func podID(pod *v1.Pod) PodID {
	if pod == nil {
		return PodID{}
	}
	return PodID{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Source: pod.Annotations[podspec.AnnotationSource]}
}

func podIPs(st v1.PodStatus) []string {
	ips := make([]string, 0, len(st.PodIPs))
	for _, ip := range st.PodIPs {
		ips = append(ips, ip.IP)
	}
	return ips
}

// countReady returns how many of the pod's containers are ready.
func countReady(st v1.PodStatus) int {
	n := 0
	for _, cs := range st.ContainerStatuses {
		if cs.Ready {
			n++
		}
	}
	return n
}

// seconds rounds to the millisecond.
func seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1000) / 1000
}

// JSON writes the document, indented, with a final newline. Nothing in it changes the state of a
// terminal, or is a command for the runner of a job.
func JSON(w io.Writer, document any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return err
	}
	_, err := io.WriteString(w, inertJSON(string(escaped(b.Bytes()))))
	return err
}

// YAML writes the document with the field names of its JSON. In a job whose runner would find commands
// in it, it is written as JSON, which is YAML too.
func YAML(w io.Writer, document any, inJob bool) error {
	data, err := json.Marshal(document)
	if err != nil {
		return err
	}
	if data, err = yaml.JSONToYAML(escaped(data)); err != nil {
		return err
	}
	if text := string(data); inJob && inert(text) != text {
		return JSON(w, document)
	}
	_, err = w.Write(data)
	return err
}

// escaped escapes in JSON what is no text in YAML, such as some control characters of a log.
func escaped(data []byte) []byte {
	return unreadable.ReplaceAllFunc(data, func(c []byte) []byte {
		r, _ := utf8.DecodeRune(c)
		return fmt.Appendf(nil, `\u%04x`, r)
	})
}

var unreadable = regexp.MustCompile("[\u007f-\u009f\ufeff\ufffe\uffff]")

// Writable returns an error if a report could not be written to the file, "" for none.
func Writable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, process.FileMode(0o644))
	if err != nil {
		return err
	}
	return f.Close()
}

// WriteFile writes a report to a file, "" for none.
func WriteFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, process.FileMode(0o644))
	if err != nil {
		return fmt.Errorf("writing report: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("writing report %s: %w", path, err)
	}
	return nil
}
