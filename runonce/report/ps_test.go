package report_test

import (
	"bytes"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

var psNow = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// ranAs is the status of a container that runs, "up", or waits to be started again, or else has ended.
func ranAs(name, state string, restarts int32, end *v1.ContainerStateTerminated) v1.ContainerStatus {
	cs := v1.ContainerStatus{Name: name, RestartCount: restarts}
	switch state {
	case "up":
		cs.Ready, cs.State.Running = true, &v1.ContainerStateRunning{}
		cs.LastTerminationState.Terminated = end
	case "":
		cs.State.Terminated = end
	default:
		cs.State.Waiting = &v1.ContainerStateWaiting{Reason: state}
		cs.LastTerminationState.Terminated = end
	}
	return cs
}

func exited(code int32, reason string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: code, Reason: reason}
}

// psState is a pod with a container "main", and before it a sidecar "side" if it has a status.
func psState(name string, policy v1.RestartPolicy, phase v1.PodPhase, main v1.ContainerStatus, side ...v1.ContainerStatus) report.PodState {
	p := pod(name, "main")
	p.Spec.RestartPolicy = policy
	start := metav1.NewTime(psNow.Add(-90 * time.Second))
	p.Status = v1.PodStatus{Phase: phase, StartTime: &start, ContainerStatuses: []v1.ContainerStatus{main}, InitContainerStatuses: side}
	always := v1.ContainerRestartPolicyAlways
	for _, cs := range side {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: cs.Name, RestartPolicy: &always})
	}
	return report.PodState{Pod: p}
}

func decided(s report.PodState, outcome runonce.Outcome, reason, message string) report.PodState {
	s.Outcome, s.Reason, s.Message, s.DecidedAt = outcome, reason, message, psNow.Add(-time.Minute)
	return s
}

func watched(s report.PodState) report.PodState {
	s.Watched = true
	return s
}

// TestPods tests the documents for the pods of earlier runs.
func TestPods(t *testing.T) {
	t.Parallel()
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	const gaveUp = `container "main" exited with code 9; gave up after 3 restarts`
	oom, backOff := exited(137, "OOMKilled"), "CrashLoopBackOff"
	web := psState("web", always, v1.PodRunning, ranAs("main", backOff, 2, oom))
	web.Pod.Status.PodIPs = []v1.PodIP{{IP: "10.88.0.2"}}
	job := psState("job", never, v1.PodFailed, ranAs("main", "", 0, exited(3, "Error")))
	named := decided(psState("crash", onFailure, v1.PodRunning, ranAs("main", backOff, 3, exited(9, "Error"))), runonce.Failed, backOff, gaveUp)
	named.Named, named.Containers = true, []runonce.Container{{Name: "main", ExitCode: &exited(9, "").ExitCode, LogPath: "/log/3.log", LogTail: []string{"boom"}}}
	waiting := decided(psState("slow", always, v1.PodPending, ranAs("main", "ImagePullBackOff", 0, nil)), runonce.TimedOut, "ImagePullBackOff", `container "main" is waiting: ImagePullBackOff: no route`)
	waiting.Pod.Status.ContainerStatuses[0].State.Waiting.Message = "no route to the registry"
	waiting.Named = true
	for _, c := range []struct {
		file   string
		states []report.PodState
	}{
		// Nobody backs off any more.
		{"ps", []report.PodState{web, job}},
		// A run goes on.
		{"ps-watched", []report.PodState{watched(web), watched(decided(job, runonce.Failed, "Error", `container "main" exited with code 3`))}},
		// One that was given up, by a watch that goes on.
		{"ps-given-up", []report.PodState{
			watched(decided(web, runonce.Failed, backOff, gaveUp)),
			decided(psState("old", always, v1.PodRunning, ranAs("main", "up", 1, oom)), runonce.Ready, "", ""),
		}},
		// All is as the last run has found it, or better.
		{"ps-well", []report.PodState{
			decided(psState("report", never, v1.PodSucceeded, ranAs("main", "", 0, exited(0, "Completed")), ranAs("side", "", 0, exited(137, "Error"))), runonce.Succeeded, "", ""),
			decided(psState("loop", never, v1.PodSucceeded, ranAs("main", "", 0, exited(0, "Completed")), ranAs("side", backOff, 0, exited(9, "Error"))), runonce.Succeeded, "", ""),
			decided(psState("done-since", never, v1.PodSucceeded, ranAs("main", "", 0, exited(0, "Completed"))), runonce.Running, "", ""),
			decided(psState("up", always, v1.PodRunning, ranAs("main", "up", 0, nil)), runonce.Ready, "", ""),
		}},
		{"ps-late", []report.PodState{
			decided(psState("now-up", always, v1.PodRunning, ranAs("main", "up", 0, nil)), runonce.TimedOut, "ContainersNotReady", `container "main" is not ready`),
			decided(psState("died", always, v1.PodRunning, ranAs("main", "", 0, exited(1, "Error"))), runonce.Running, "", ""),
			// Its sidecar was stopped because it has failed.
			psState("failed", never, v1.PodFailed, ranAs("main", "", 0, oom), ranAs("side", "", 0, exited(143, "Error"))),
		}},
		{"ps-named", []report.PodState{named, waiting}},
	} {
		p := report.NewPods(c.states)
		for ending, style := range map[string]report.Style{".table": {}, ".wide": {Wide: true}} {
			var b bytes.Buffer
			if err := p.Table(&b, style, psNow); err != nil {
				t.Fatal(err)
			}
			golden(t, c.file+ending, b.Bytes())
		}
	}
	var b bytes.Buffer
	if err := report.JSON(&b, report.NewPods([]report.PodState{web, named})); err != nil {
		t.Fatal(err)
	}
	golden(t, "ps.json", b.Bytes())
}

// TestPodsKeepTheirAddresses: a column of reasons that is left out takes no room from that of addresses.
func TestPodsKeepTheirAddresses(t *testing.T) {
	t.Parallel()
	state := psState("kubernetes-dashboard-agent", v1.RestartPolicyAlways, v1.PodRunning, ranAs("main", "up", 0, nil))
	state.Pod.Status.PodIPs = []v1.PodIP{{IP: "192.0.2.2"}, {IP: "2001:db8::ffff:2"}}
	var out bytes.Buffer
	if err := report.NewPods([]report.PodState{state}).Table(&out, report.Style{}, psNow); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out.Bytes(), []byte("2001:db8::ffff:2")) {
		t.Errorf("%s", &out)
	}
}
