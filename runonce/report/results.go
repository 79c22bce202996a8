package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce"
)

// Table writes one row for each pod. Below the table are the details of every pod that is not
// where it should be: the whole message, and the last lines of the logs of failed containers.
func (r Report) Table(w io.Writer, s Style) error {
	_, err := io.WriteString(w, podTable(s, r.columns(), r.rows()))
	return err
}

func (Report) columns() []column {
	return []column{
		namespaceColumn(),
		{title: "POD"},
		{title: "OUTCOME", colored: true},
		{title: "READY"},
		{title: "RESTARTS", optional: true, usual: []string{"0"}},
		{title: "ATTEMPTS", optional: true, usual: []string{"0", "1"}, expendable: true},
		{title: "TIME"},
		{title: "IP", optional: true, expendable: true},
		{title: "PORTS", wide: true},
		{title: "CPU", wide: true},
		{title: "PEAK MEMORY", wide: true},
	}
}

func (r Report) rows() []row {
	rows := make([]row, 0, len(r.Results))
	for i := range r.Results {
		rows = append(rows, r.Results[i].row())
	}
	return rows
}

func (r *Result) row() row {
	elapsed := ""
	if r.ElapsedSeconds > 0 || r.Attempts > 0 {
		elapsed = Elapsed(time.Duration(r.ElapsedSeconds * float64(time.Second)))
	}
	cpu, peak := sumUsage(r.Containers)
	out := row{
		PodID: r.PodID, word: string(r.Outcome), problem: r.problem(), optional: r.Optional, reason: r.Reason, message: messageOf(r.Reason, r.Message, r.PreemptedBy),
		more: slices.Concat(r.pod.Kills, r.logs(), r.events()),
		// Of a pod at its goal, the message says less about it than the lines.
		complete: r.Outcome.AtGoal() && r.Reason == podspec.ReasonOOMKilled && len(r.pod.Kills) > 0,
		cells: []string{
			r.Namespace, r.Name, string(r.Outcome), fmt.Sprintf("%d/%d", countReady(r.Status), r.pod.Containers),
			strconv.Itoa(r.Restarts), strconv.Itoa(r.Attempts), elapsed, strings.Join(r.PodIPs, ","), portCell(r.Ports), cpu, peak,
		},
	}
	if r.RemoveError != "" {
		out.complete = false
		out.reason = cmp.Or(r.Reason, "NotRemoved")
		out.message = strings.TrimPrefix(out.message+"; not removed: "+r.RemoveError, "; ")
	}
	if r.EarlierRun {
		out.note, out.hint = r.earlier()
	}
	return out
}

// messageOf returns the message without the reason before it, and with the pod that preempted this one,
// which the kubelet's message does not name.
func messageOf(reason, message, by string) string {
	message = strings.TrimPrefix(message, reason+": ")
	if by == "" || strings.Contains(message, by) {
		return message
	}
	return strings.TrimPrefix(message+" ("+by+")", " ")
}

// Unmet says, for people, why a wait for the pod has ended without its goal, "" if it was reached.
func Unmet(in *runonce.Result) string {
	if in.Outcome.AtGoal() || in.Outcome == runonce.Removed {
		return ""
	}
	return join(": ", string(in.Outcome), in.Reason, messageOf(in.Reason, in.Message, ""))
}

// problem tells whether the pod is not where it should be. A canceled one is where the user left it, unless
// another pod is the reason.
func (r *Result) problem() bool {
	return r.RemoveError != "" || r.isDependent() || !r.Outcome.AtGoal() && r.Outcome != runonce.Canceled
}

// isDependent tells whether the pod was not started because of another one on which it depends.
func (r *Result) isDependent() bool {
	return r.Outcome == runonce.Canceled && r.Reason == runonce.ReasonDependencyFailed
}

// earlier says in a few words when an earlier run ran the pod, and how to run it again.
func (r *Result) earlier() (note, hint string) {
	note, at := "earlier run", r.Status.StartTime
	if r.FinishedAt != nil {
		at, hint = r.FinishedAt, "--rerun runs it again"
	}
	if at != nil {
		note += " " + duration.HumanDuration(max(0, time.Since(at.Time))) + " ago"
	}
	return note, hint
}

// events returns the lines about the pod's events.
func (r *Result) events() []string {
	if len(r.Events) == 0 {
		return nil
	}
	lines := []string{"last events:"}
	for _, e := range r.Events {
		lines = append(lines, "    "+e)
	}
	return lines
}

// exitText is an exit code, and that the container was OOM-killed if so.
func exitText(code int32, reason string) string {
	text := strconv.Itoa(int(code))
	if reason == podspec.ReasonOOMKilled {
		text += " (" + reason + ")"
	}
	return text
}

// logs returns the last lines of the logs of failed containers, with the paths, and the paths of
// those that a pod still waits for.
func (r *Result) logs() []string {
	return logLines(r.Containers, func(c *runonce.Container) bool {
		return r.problem() && c.EndedBadly() || r.Outcome == runonce.TimedOut && c.State != "Terminated"
	})
}

// logLines returns the last lines of logs, as far as the containers have them, and the paths of the
// logs of other containers that are wanted.
func logLines(containers []runonce.Container, wanted func(*runonce.Container) bool) []string {
	var lines []string
	for i := range containers {
		c := &containers[i]
		line := fmt.Sprintf("container %q", c.Name)
		if c.EndedBadly() || c.State == "Terminated" { // else the log is not that of the instance which has ended
			line += ", exit code " + exitText(*c.ExitCode, c.ExitReason)
		}
		switch {
		case len(c.LogTail) > 0:
			lines = append(lines, line+", last lines of "+c.LogPath+":")
		case c.LogPath != "" && wanted(c):
			lines = append(lines, line+", log: "+c.LogPath)
		}
		for _, text := range c.LogTail {
			lines = append(lines, "    "+text)
		}
	}
	return lines
}
