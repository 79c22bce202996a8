// Package report writes what became of the pods: as a table for people, as JSON, YAML
// and JUnit for programs. The field names are a promise to scripts: fields may be added,
// never renamed.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// APIVersion is the version of every document that this package writes.
const APIVersion = "runonce/v1"

// Report is what became of a run.
type Report struct {
	APIVersion     string   `json:"apiVersion"`
	Kind           string   `json:"kind"` // Report
	ExitCode       int      `json:"exitCode"`
	ElapsedSeconds float64  `json:"elapsedSeconds"`
	Results        []Result `json:"results"`
}

// Result is what became of one pod.
type Result struct {
	Namespace      string          `json:"namespace"`
	Name           string          `json:"name"`
	UID            string          `json:"uid"`
	Source         string          `json:"source"` // file:line
	Outcome        runonce.Outcome `json:"outcome"`
	Reason         string          `json:"reason"`
	Message        string          `json:"message"`
	Attempts       int             `json:"attempts"`
	Restarts       int             `json:"restarts"`
	ElapsedSeconds float64         `json:"elapsedSeconds"`
	PodIPs         []string        `json:"podIPs"`
	Phases         []Phase         `json:"phases"`
	Containers     []Container     `json:"containers"`
	// Annotations are those that a cluster would have put on the pod while it ran: its
	// network status, where it has joined several networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	// PreemptedBy is the "namespace/name" of the pod that took this one's place.
	PreemptedBy string `json:"preemptedBy,omitempty"`
	// RemoveError says why the pod could not be removed although that was asked for.
	RemoveError string       `json:"removeError,omitempty"`
	Status      v1.PodStatus `json:"status"`

	wanted int // containers of the spec
}

// Phase is one step of a pod's start.
type Phase struct {
	Name         string  `json:"name"`
	StartSeconds float64 `json:"startSeconds"` // since the start of the run
	Seconds      float64 `json:"seconds"`
}

// Container is what became of one container.
type Container struct {
	Name     string   `json:"name"`
	Image    string   `json:"image"`
	State    string   `json:"state"`    // Waiting, Running or Terminated
	ExitCode *int32   `json:"exitCode"` // null when it never ended
	Restarts int      `json:"restarts"`
	LogPath  string   `json:"logPath"`
	LogTail  []string `json:"logTail"`
}

// New returns the report on results, in their order. elapsed is that of the whole run.
func New(results []runonce.Result, exitCode int, elapsed time.Duration) Report {
	r := Report{
		APIVersion: APIVersion, Kind: "Report", ExitCode: exitCode,
		ElapsedSeconds: seconds(elapsed), Results: make([]Result, 0, len(results)),
	}
	for i := range results {
		r.Results = append(r.Results, resultOf(&results[i]))
	}
	return r
}

func resultOf(in *runonce.Result) Result {
	out := Result{
		Outcome: in.Outcome, Reason: in.Reason, Message: in.Message,
		Attempts: in.Attempts, Restarts: in.Restarts, ElapsedSeconds: seconds(in.Elapsed),
		PodIPs: []string{}, Phases: []Phase{}, Containers: []Container{},
		PreemptedBy: fullName(in.By), RemoveError: in.RemoveError, Status: in.Status,
		Annotations: in.Annotations,
	}
	if in.Pod != nil {
		out.Namespace, out.Name, out.UID = in.Pod.Namespace, in.Pod.Name, string(in.Pod.UID)
		out.Source = in.Pod.Annotations[podspec.AnnotationSource]
		out.wanted = len(in.Pod.Spec.Containers)
	}
	for _, ip := range in.Status.PodIPs {
		out.PodIPs = append(out.PodIPs, ip.IP)
	}
	for _, p := range in.Phases {
		out.Phases = append(out.Phases, Phase{Name: p.Name, StartSeconds: seconds(p.Start), Seconds: seconds(p.Elapsed)})
	}
	for _, c := range in.Containers {
		tail := c.LogTail
		if tail == nil {
			tail = []string{}
		}
		out.Containers = append(out.Containers, Container{
			Name: c.Name, Image: c.Image, State: c.State, ExitCode: c.ExitCode,
			Restarts: c.Restarts, LogPath: c.LogPath, LogTail: tail,
		})
	}
	return out
}

// fullName returns "namespace/name", empty for no pod.
func fullName(pod *v1.Pod) string {
	if pod == nil {
		return ""
	}
	return pod.Namespace + "/" + pod.Name
}

// seconds rounds to the millisecond: more would be noise.
func seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1000) / 1000
}

// JSON writes the document, indented, with a final newline.
func JSON(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// YAML writes the document with the field names of its JSON.
func YAML(w io.Writer, document any) error {
	data, err := yaml.Marshal(document)
	if err != nil {
		return fmt.Errorf("encoding YAML: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	return nil
}
