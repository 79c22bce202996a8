package manifests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// workload returns a workload document with the lines of its spec; %s in spec is a
// template that a selector of app: x matches.
func workloadDoc(apiVersion, kind, spec string) string {
	const template = `template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}`
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: w, namespace: ns}\nspec:\n", apiVersion, kind) +
		strings.ReplaceAll(spec, "TEMPLATE", template)
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	const selector = "  selector: {matchLabels: {app: x}}\n"
	never := "  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"
	for _, tt := range []struct {
		name     string
		in       string
		pods     []string
		warnings []string
		problems []string
	}{
		{"deployment", workloadDoc("apps/v1", "Deployment", "  replicas: 2\n"+selector+"  TEMPLATE\n"), []string{"ns/w-0", "ns/w-1"}, nil, nil},
		{"one by default", workloadDoc("apps/v1", "ReplicaSet", selector+"  TEMPLATE\n"), []string{"ns/w-0"}, nil, nil},
		{"controller", workloadDoc("v1", "ReplicationController", "  TEMPLATE\n"), []string{"ns/w-0"}, nil, nil},
		{"daemon set", workloadDoc("apps/v1", "DaemonSet", selector+"  TEMPLATE\n"), []string{"ns/w-0"}, nil, nil},
		{
			"stateful set", workloadDoc("apps/v1", "StatefulSet", "  replicas: 2\n  ordinals: {start: 5}\n  serviceName: s\n"+selector+"  TEMPLATE\n"),
			[]string{"ns/w-5", "ns/w-6"},
			nil,
			nil,
		},
		{"job", workloadDoc("batch/v1", "Job", never), []string{"ns/w-0"}, nil, nil},
		{
			"job of three", workloadDoc("batch/v1", "Job", "  completions: 3\n  parallelism: 2\n  backoffLimit: 4\n"+never),
			[]string{"ns/w-0", "ns/w-1", "ns/w-2"},
			[]string{
				"f:6: spec.parallelism: 2 pods run at a time, but the node needs enough resources for all 3",
			},
			nil,
		},
		{"job of workers", workloadDoc("batch/v1", "Job", "  parallelism: 2\n"+never), []string{"ns/w-0", "ns/w-1"}, nil, nil},
		{"suspended", workloadDoc("batch/v1", "Job", "  suspend: true\n"+never), nil, []string{"f:4: spec: has no pods"}, nil},
		{"no replicas", workloadDoc("apps/v1", "Deployment", "  replicas: 0\n"+selector+"  TEMPLATE\n"), nil, []string{"f:4: spec: has no pods"}, nil},
		{
			"job that always restarts", workloadDoc("batch/v1", "Job", "  TEMPLATE\n"), nil, nil,
			[]string{`f:5: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`},
		},
		{
			"policy of a job", workloadDoc("batch/v1", "Job", "  podReplacementPolicy: Failed\n  successPolicy: {rules: [{succeededCount: 1}]}\n  completionMode: Indexed\n  completions: 1\n"+never), nil,
			nil,
			[]string{"f:6: spec.successPolicy: not supported: a run does not stop the remaining pods of a Job that has succeeded"},
		},
		{
			"selector that does not match", workloadDoc("apps/v1", "Deployment", "  selector: {matchLabels: {app: z}}\n  TEMPLATE\n"), nil, nil,
			[]string{"f:6: spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`"},
		},
		{"too many", workloadDoc("apps/v1", "Deployment", "  replicas: 2000000\n"+selector+"  TEMPLATE\n"), nil, nil, []string{
			"f:4: spec: 2000000 pods are more than the 1000 that a workload may have here",
		}},
		{
			"refused field of a template", workloadDoc("apps/v1", "Deployment", "  replicas: 3\n"+selector+"  template:\n    metadata: {labels: {app: x}}\n    spec:\n      schedulingGates: [{name: g}]\n      containers: [{name: c, image: 'I'}]\n"), nil, nil,
			[]string{`f:10: spec.template.spec.schedulingGates: not supported: nothing here removes a gate`},
		},
		{
			"reference of a template", workloadDoc("apps/v1", "Deployment", "  replicas: 2\n"+selector+"  template:\n    metadata: {labels: {app: x}}\n    spec:\n      containers: [{name: c, image: i, envFrom: [{secretRef: {name: s}}]}]\n"), nil, nil,
			[]string{`f:10: spec.template.spec.containers[0].envFrom[0].secretRef.name: Secret "s" is not in the input (add it to the input, or mark the reference optional)`},
		},
		{
			"claims of blocks", workloadDoc("apps/v1", "StatefulSet", selector+"  volumeClaimTemplates: [{metadata: {name: d}, spec: {volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]\n  TEMPLATE\n"), nil, nil,
			[]string{`f:6: spec.volumeClaimTemplates[0].spec.volumeMode: "Block" is not supported: no storage driver here attaches raw devices (use Filesystem)`},
		},
		{
			"old version", workloadDoc("extensions/v1beta1", "Deployment", "  TEMPLATE\n"), nil, nil,
			[]string{"f:1: apiVersion: there is no kind Deployment in extensions/v1beta1 (use apiVersion: apps/v1)"},
		},
		{
			"long name", strings.Replace(workloadDoc("apps/v1", "Deployment", "  replicas: 2\n"+selector+"  TEMPLATE\n"), "name: w", "name: "+strings.Repeat("w", 214), 1),
			[]string{"ns/" + strings.Repeat("w", 55) + "-a54ef-0", "ns/" + strings.Repeat("w", 55) + "-a54ef-1"},
			nil, nil,
		},
		{
			"pod of the same name", workloadDoc("apps/v1", "DaemonSet", selector+"  TEMPLATE\n") + "---\n" + workloadDoc("batch/v1", "Job", never),
			[]string{"ns/w-0"},
			nil,
			[]string{`f:10: metadata.name: Pod "ns/w-0" is already defined at f:1, of DaemonSet "w" (rename or remove one)`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := Read(dir("f", tt.in))
			if d := cmp.Diff(tt.pods, names(set.Pods)); d != "" {
				t.Error("pods:", d)
			}
			if d := cmp.Diff(tt.warnings, lines(set.Warnings.Err())); d != "" {
				t.Error("warnings:", d)
			}
			if d := cmp.Diff(tt.problems, lines(err)); d != "" {
				t.Error("problems:", d)
			}
		})
	}
}

func TestCronJob(t *testing.T) {
	t.Parallel()
	in := workloadDoc("batch/v1", "CronJob", "  schedule: '* * * * *'\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}\n")
	set := mustRead(t, "f", in)
	if len(set.Pods) != 0 || set.Warnings.Error() != "f:2: kind: a CronJob is not run (use --run-cronjobs to run its job once)" {
		t.Errorf("pods %s, warnings %s", names(set.Pods), set.Warnings)
	}
	set, err := ReadPaths(t.Context(), []string{"-"}, Options{RunCronJobs: true, Stdin: strings.NewReader(in)})
	if err != nil || cmp.Diff([]string{"ns/w-0"}, names(set.Pods)) != "" {
		t.Errorf("pods %s, error %v", names(set.Pods), err)
	}
	bad := strings.Replace(in, "* * * * *", "daily", 1)
	if _, err := Read(dir("f", bad)); err == nil || !strings.Contains(err.Error(), "f:5: spec.schedule: Invalid value") {
		t.Errorf("bad schedule: %v", err)
	}
}

func TestIndexedJob(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", workloadDoc("batch/v1", "Job",
		"  completionMode: Indexed\n  completions: 2\n  parallelism: 2\n  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"))
	p := set.Pods[1]
	if p.Labels["batch.kubernetes.io/job-completion-index"] != "1" || p.Labels["job-name"] != "w" {
		t.Errorf("labels: %v", p.Labels)
	}
	if env := p.Spec.Containers[0].Env; len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" {
		t.Errorf("env: %v", env)
	}
	if set.Pods[0].UID == p.UID {
		t.Error("pods share their UID")
	}
}

func TestDaemonSetTolerations(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", workloadDoc("apps/v1", "DaemonSet", "  selector: {matchLabels: {app: x}}\n  TEMPLATE\n"))
	found := false
	for _, tol := range set.Pods[0].Spec.Tolerations {
		found = found || tol.Key == "node.kubernetes.io/unschedulable"
	}
	if !found {
		t.Errorf("tolerations: %v", set.Pods[0].Spec.Tolerations)
	}
}

// TestJobRules: how often a pod is retried is not part of what runs, so it does not change the
// UID.
func TestJobRules(t *testing.T) {
	t.Parallel()
	read := func(spec string) *v1.Pod {
		t.Helper()
		set, err := Read(dir("f", workloadDoc("batch/v1", "Job", spec+"  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n")))
		if err != nil {
			t.Fatal(err)
		}
		return set.Pods[0]
	}
	a, b := read(""), read("  backoffLimit: 2\n")
	if want := `{"name":"w","completions":1,"parallelism":1,"backoffLimit":6}`; a.Annotations["runonce/job"] != want {
		t.Errorf("rules %s, want %s", a.Annotations["runonce/job"], want)
	}
	if a.UID != b.UID || a.Annotations["runonce/job"] == b.Annotations["runonce/job"] {
		t.Errorf("uids %s %s, rules %s", a.UID, b.UID, b.Annotations["runonce/job"])
	}
}

// TestAppArmorOfTemplate: the older annotation says the profile of containers, also in a template.
func TestAppArmorOfTemplate(t *testing.T) {
	t.Parallel()
	set, err := Read(dir("f", workloadDoc("apps/v1", "Deployment", "  selector: {matchLabels: {app: x}}\n  template:\n"+
		"    metadata: {labels: {app: x}, annotations: {container.apparmor.security.beta.kubernetes.io/c: localhost/p}}\n"+
		"    spec: {containers: [{name: c, image: i}]}\n")))
	if err != nil {
		t.Fatal(err)
	}
	sc := set.Pods[0].Spec.Containers[0].SecurityContext
	if sc == nil || sc.AppArmorProfile == nil || sc.AppArmorProfile.LocalhostProfile == nil || *sc.AppArmorProfile.LocalhostProfile != "p" {
		t.Errorf("%+v", sc)
	}
}
