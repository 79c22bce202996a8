package admit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// ends makes a pod one that can end.
func ends(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }

func runningPod(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.Status.Phase = v1.PodRunning
	return p
}

func useClaim(p *v1.Pod) {
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
}

// TestPlanWithQueue: which pods start, wait and are rejected, and why.
func TestPlanWithQueue(t *testing.T) {
	t.Parallel()
	web := hostPort("", v1.ProtocolTCP, 80)
	job := func(name, requests string, change ...func(*v1.Pod)) *v1.Pod {
		return pod(name, 0, requests, append(change, ends)...)
	}
	other := runningPod(pod("other", 0, "cpu=1"))
	for _, c := range []struct {
		name    string
		running []*v1.Pod
		pods    []*v1.Pod
		options Options
		want    []string // name, verdict and the message
	}{
		{
			name: "in order", pods: []*v1.Pod{job("a", "cpu=1500m,memory=512Mi"), job("b", "cpu=1500m,memory=1Gi"), job("c", "cpu=1")},
			want: []string{
				"a Admitted",
				"b Queued 1 [cpu memory] waits for cpu: needs 1500m, 500m of 2 are free, and for memory: needs 1Gi, 512Mi of 1Gi are free; it is the next one",
				"c Queued 2 [cpu] waits for cpu: needs 1, 500m of 2 are free; 1 pod is before it",
			},
		},
		{
			name: "what is free is kept for the first", pods: []*v1.Pod{job("a", "cpu=1"), job("b", "cpu=2"), job("c", "cpu=500m"), job("d", "memory=1Mi")},
			want: []string{
				"a Admitted", "b Queued 1 [cpu] waits for cpu: needs 2, 1 of 2 are free; it is the next one",
				"c Queued 2 [cpu] waits for cpu: needs 500m, 1 of 2 are free and kept for default/b; 1 pod is before it", "d Admitted",
			},
		},
		{
			name: "the number of pods", options: Options{}, pods: []*v1.Pod{job("a", ""), job("b", ""), job("c", ""), job("d", ""), job("e", "")},
			want: []string{
				"a Admitted", "b Admitted", "c Admitted", "d Admitted", "e Queued 1 [pods] waits for pods: needs 1, 0 of 4 are free; it is the next one",
			},
		},
		{
			name: "host ports and claims", options: Options{Claims: map[types.NamespacedName]Claim{{Namespace: "default", Name: "data"}: {OnePod: true}}},
			pods: []*v1.Pod{job("a", "", web, useClaim), job("b", "", web), job("c", "", useClaim)},
			want: []string{
				"a Admitted",
				"b Queued 1 [host ports] waits for host ports: host port 80/TCP is requested by pod default/a too; it is the next one",
				"c Queued 2 [volumes] waits for volumes: " + messageOnePod + "; 1 pod is before it",
			},
		},
		{
			name: "a port of another program", options: Options{Listening: []Listener{{HostPort: HostPort{Port: 80}, PID: 7, Process: "nginx"}}},
			pods: []*v1.Pod{job("a", "", web)},
			want: []string{"a Rejected NodePorts " + messageNoPorts + ": host port 80/TCP is in use by process nginx (pid 7)"},
		},
		{
			name: "pods that never end", pods: []*v1.Pod{pod("web", 0, "cpu=1"), job("a", "cpu=2"), job("b", "cpu=1"), job("c", "cpu=1"), pod("api", 0, "cpu=1")},
			want: []string{
				"web Admitted",
				"a Rejected OutOfcpu Node didn't have enough resource: cpu, requested: 2000, used: 1000, capacity: 2000; pods that do not end have it or get it first: default/web",
				"b Admitted", "c Queued 1 [cpu] waits for cpu: needs 1, 0 of 2 are free; it is the next one",
				"api Queued 2 [cpu] waits for cpu: needs 1, 0 of 2 are free; 1 pod is before it",
			},
		},
		{
			name: "one that never ends waits for those that could not run beside it", pods: []*v1.Pod{job("a", "cpu=1,memory=1Gi"), job("b", "cpu=100m,memory=1Gi"), job("c", "cpu=2"), pod("web", 0, "cpu=500m")},
			want: []string{
				"a Admitted", "b Queued 1 [memory] waits for memory: needs 1Gi, 0 of 1Gi are free; it is the next one",
				"c Queued 2 [cpu] waits for cpu: needs 2, 1 of 2 are free; 1 pod is before it",
				"web Queued 3 [its turn] waits for its turn; 2 pods are before it",
			},
		},
		{
			name: "a pod of another run", running: []*v1.Pod{other}, pods: []*v1.Pod{job("a", "cpu=1"), job("b", "cpu=2"), job("c", "cpu=1")},
			want: []string{
				"a Admitted", "b Queued 1 [cpu] waits for cpu: needs 2, 0 of 2 are free; it is the next one",
				"c Queued 2 [cpu] waits for cpu: needs 1, 0 of 2 are free; 1 pod is before it",
			},
		},
		{
			name: "nothing but a pod of another run", running: []*v1.Pod{other}, pods: []*v1.Pod{job("b", "cpu=2"), pod("web", 0, "cpu=1")},
			want: []string{
				"b Rejected OutOfcpu Node didn't have enough resource: cpu, requested: 2000, used: 2000, capacity: 2000; pods of other runs have it: default/other",
				"web Admitted",
			},
		},
		{
			name: "a critical one that finds no victim is the first", pods: []*v1.Pod{job("a", "cpu=1"), job("b", "cpu=1"), pod("boss", SystemCritical, "cpu=2", ends)},
			running: []*v1.Pod{runningPod(pod("sys", SystemCritical, "cpu=1", ends))}, options: Options{Order: ByManifest},
			want: []string{
				"a Admitted", "b Queued 2 [cpu] waits for cpu: needs 1, 0 of 2 are free; 1 pod is before it",
				"boss Queued 1 [cpu] waits for cpu: needs 2, 0 of 2 are free; it is the next one",
			},
		},
		{
			name: "what depends on others comes after them", pods: []*v1.Pod{pod("web", 0, "cpu=1500m"), job("migrate", "cpu=1")},
			options: Options{DependsOn: map[types.NamespacedName][]podspec.Dependency{
				{Namespace: "default", Name: "web"}: {{Namespace: "default", Name: "migrate", Condition: podspec.UntilCompleted, Pods: []types.NamespacedName{{Namespace: "default", Name: "migrate"}}}},
			}},
			want: []string{"web Queued 1 [cpu] waits for cpu: needs 1500m, 1 of 2 are free; it is the next one", "migrate Admitted"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.options.Queue = true
			plan := Decide(node("cpu=2,memory=1Gi,pods=4"), c.running, c.pods, c.options)
			var got []string
			for _, d := range plan.Decisions {
				text := fmt.Sprintf("%s %s", d.Pod.Name, d.Verdict)
				switch d.Verdict {
				case Queued:
					text += fmt.Sprintf(" %d %v %s", d.Place, d.Lacks, d.Message)
				case Rejected:
					text += " " + strings.Join([]string{d.Reason, d.Message}, " ")
				case Admitted, Preempted:
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
