package report_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

// described is the pod of testdata/describe.yaml.
func described(t *testing.T) report.Description {
	t.Helper()
	text, err := os.ReadFile("testdata/describe.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(text, pod); err != nil {
		t.Fatal(err)
	}
	return report.Description{PodState: report.PodState{Pod: pod}}
}

// TestDescribe: the sections of kubectl, and what runonce knows besides. Nothing in them controls a terminal.
func TestDescribe(t *testing.T) {
	t.Parallel()
	d := described(t)
	d.Node = "host"
	d.PodState = decided(d.PodState, runonce.Failed, "CrashLoopBackOff", "gave up\nafter 3 restarts")
	d.Digests = map[string]string{"main": "sha256:5678", "proxy": "sha256:aa"}
	d.PodState.Containers = []runonce.Container{{Name: "main", LogPath: "/var/log/pods/main/3.log", Usage: podusage.Total{
		CPUSeconds: new(61.5), PeakMemoryBytes: new(int64(41<<20 + 1)), ReadBytes: new(int64), OOMKills: new(int64(2)),
	}}}
	d.Usage = &podusage.Pod{Containers: []podusage.Container{{Name: "proxy", Usage: podusage.Usage{CPUMillicores: 12, MemoryBytes: 34 << 20}}}}
	d.Services = []*v1.Service{
		{ObjectMeta: metav1.ObjectMeta{Name: "dns"}, Spec: v1.ServiceSpec{ClusterIP: "None"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeNodePort, ClusterIPs: []string{"10.1.0.1", "fd01::1"},
			Ports: []v1.ServicePort{{Port: 443, NodePort: 30443, Protocol: v1.ProtocolTCP, TargetPort: intstr.FromString("http")}, {Port: 1, Protocol: v1.ProtocolTCP, TargetPort: intstr.FromString("none")}},
		}},
	}
	d.Events = []podevent.Event{
		podevent.At(psNow.Add(-5*time.Minute), podevent.Event{Type: "Normal", Reason: "Scheduled", Source: "default-scheduler", Message: "Successfully assigned prod/web to host"}),
		{Type: "Warning", Reason: "BackOff", Container: "main", Message: "Back-off \x1b[1mrestarting", Count: 4, FirstSeen: psNow.Add(-4 * time.Minute), LastSeen: psNow.Add(-10 * time.Second)},
	}
	var b bytes.Buffer
	if err := d.Text(&b, psNow); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(b.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
		t.Errorf("a control character in %q", b.String()[i:])
	}
	golden(t, "describe.txt", b.Bytes())
}

// TestDescribeOnCluster: a pod that is deleted, and runs as its service account, on a cluster that knows no more.
func TestDescribeOnCluster(t *testing.T) {
	t.Parallel()
	deleted, grace := metav1.NewTime(psNow.Add(-3*time.Second)), int64(30)
	d := report.Description{ServiceAccount: true, PodState: report.PodState{Watched: true, Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "x", DeletionTimestamp: &deleted, DeletionGracePeriodSeconds: &grace},
		Spec:       v1.PodSpec{ServiceAccountName: "robot", Containers: []v1.Container{{Name: "main", Image: "web:1"}}},
		Status:     v1.PodStatus{Phase: v1.PodPending, Reason: "NotYet", Message: "two\nlines"},
	}}}
	var b bytes.Buffer
	if err := d.Text(&b, psNow); err != nil {
		t.Fatal(err)
	}
	golden(t, "describe-cluster.txt", b.Bytes())
}

// TestRemains: a pod that was removed, and one that was never started.
func TestRemains(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, r := range []report.Remains{
		{
			Namespace: "prod", Name: "web", UID: "x", Started: true, Changed: psNow, Logs: map[string]string{"main": "/var/log/pods/main/0.log"},
			Events: []podevent.Event{podevent.At(psNow.Add(-time.Minute), podevent.Event{Type: "Normal", Reason: "Killing", Container: "main", Message: "Stopping container main"})},
		},
		{Namespace: "prod", Name: "big", UID: "y", Changed: psNow},
	} {
		if err := r.Text(&b, psNow); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "describe-removed.txt", b.Bytes())
}
