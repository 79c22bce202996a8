package manifests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// TestDefinitions: what pods are made from and refer to is known with them, and pods know what they were made from, but
// not on a cluster, which would remove them without it.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	const selector = "  selector: {matchLabels: {app: x}}\n"
	never := "  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"
	for _, tt := range []struct {
		name    string
		in      string
		options Options
		all     []string
		owner   string // of each pod
	}{
		{"pod", objectDoc("Pod", "spec: {containers: [{name: c, image: i}]}\n"), Options{}, nil, ""},
		{"deployment", workloadDoc("apps/v1", "Deployment", selector+"  TEMPLATE\n"), Options{}, []string{"apps/v1, Kind=Deployment w f:1"}, "apps/v1 Deployment w"},
		{"controller", workloadDoc("v1", "ReplicationController", "  TEMPLATE\n"), Options{}, []string{"/v1, Kind=ReplicationController w f:1"}, "v1 ReplicationController w"},
		{"job", workloadDoc("batch/v1", "Job", "  completions: 2\n  parallelism: 2\n"+never), Options{}, []string{"batch/v1, Kind=Job w f:1"}, "batch/v1 Job w"},
		{
			"cron job", workloadDoc("batch/v1", "CronJob", "  schedule: '* * * * *'\n  jobTemplate:\n    spec:\n    "+never),
			Options{RunCronJobs: true},
			[]string{"batch/v1, Kind=CronJob w f:1", "batch/v1, Kind=Job w f:1"},
			"batch/v1 Job w",
		},
		{"cron job that is not run", workloadDoc("batch/v1", "CronJob", "  schedule: '* * * * *'\n  jobTemplate:\n    spec:\n    "+never), Options{}, nil, ""},
		{"no replicas", workloadDoc("apps/v1", "Deployment", "  replicas: 0\n"+selector+"  TEMPLATE\n"), Options{}, nil, ""},
		{"data", objectDoc("ConfigMap", "data: {a: b}\n") + "---\n" + objectDoc("Secret", "stringData: {a: b}\n") + "---\n" + objectDoc("Namespace", ""), Options{}, []string{"/v1, Kind=ConfigMap w f:1", "/v1, Kind=Secret w f:6"}, ""},
		{"job of a cluster", workloadDoc("batch/v1", "Job", never), Options{Cluster: true}, []string{"batch/v1, Kind=Job w f:1"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := read(t.Context(), tt.options, func(visit func(inputFile)) { inputFS(dir("f", tt.in), visit) })
			if err != nil && len(set.Invalid) > 0 {
				t.Fatal(err)
			}
			var all []string
			for _, o := range set.Definitions() {
				all = append(all, fmt.Sprint(o.GetObjectKind().GroupVersionKind(), " ", o.GetName(), " ", o.GetAnnotations()[podspec.AnnotationSource]))
			}
			slices.Sort(all)
			if diff := cmp.Diff(tt.all, all); diff != "" {
				t.Error(diff)
			}
			for _, pod := range set.Pods {
				owner := ""
				if c := metav1.GetControllerOf(pod); c != nil {
					owner = strings.Join([]string{c.APIVersion, c.Kind, c.Name}, " ")
					if c.UID == "" || !slices.ContainsFunc(set.Definitions(), func(o podspec.Object) bool { return o.GetUID() == c.UID }) {
						t.Errorf("the owner's UID %q is of none", c.UID)
					}
				}
				if owner != tt.owner {
					t.Errorf("owner of %s: %q, want %q", pod.Name, owner, tt.owner)
				}
			}
		})
	}
}

func objectDoc(kind, rest string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: w, namespace: ns}\n%s", kind, rest)
}
