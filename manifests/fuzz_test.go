package manifests

import (
	"strings"
	"testing"

	"github.com/runonce/runonce/manifests/validation"
)

// FuzzRead reads any file: it must not crash, and what it accepts must be valid for Kubernetes,
// have unique names, and be the same when read again.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		pod("p"), pod("p") + "---\n" + pod("q", "  hostNetwork: true\n"), seedPod,
		"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}\n",
		workloadDoc("batch/v1", "Job", "  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n"),
		workloadDoc("apps/v1", "StatefulSet", "  replicas: 2\n  selector: {matchLabels: {app: x}}\n  TEMPLATE\n"),
		workloadDoc("batch/v1", "CronJob", "  schedule: '@daily'\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}\n"),
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n---\n" + pod("p") + "    envFrom: [{secretRef: {name: s}}]\n",
		"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: x}\nvalue: 5\nglobalDefault: true\n",
		"apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus: {capacity: {cpu: 4}}\n",
		annotated("a", "depends-on", "b, j:completed, x/y:running, a, j-1") + annotated("b", "optional", "true") + plainJob("{annotations: {runonce/depends-on: b}}"),
		serviceDoc("s", "  type: LoadBalancer\n  selector: {app: x}\n  clusterIPs: [10.0.0.1, 'fd00::1']\n  clusterIP: 10.0.0.1\n  ipFamilyPolicy: RequireDualStack\n"+
			"  ports: [{name: a, port: 80, targetPort: http, nodePort: 30080}, {name: b, port: 53, protocol: UDP}]\n") + serviceDoc("t", "  type: NodePort\n  ports: [{port: 80, nodePort: 30080}]\n") +
			serviceDoc("u", "  type: ExternalName\n  externalName: db.example.com\n") + serviceDoc("v", "  clusterIP: None\n  selector: {app: x}\n") + dependent("a", "v, s"),
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\n",
		"{{ if .Values.x }}\nkind: Pod\n{{ end }}\n", "resources: [a]\n", "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}}]\n",
		"apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: r}\nhandler: runc\n",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
	} {
		f.Add(s)
	}
	rules, err := validation.New("", "default")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in string) {
		o := Options{RunCronJobs: true, NodeName: "here", Stdin: strings.NewReader(in)}
		set, err := ReadPaths(t.Context(), []string{"-"}, o)
		v := NewValidation(set, err, false)
		if (err != nil) != (v.Err() != nil) {
			t.Fatalf("error %v, validation %v", err, v)
		}
		for _, p := range v.Problems {
			if p.Message == "" || p.Severity == "" || p.Line < 0 || strings.Count(p.String(), "\n") > strings.Count(p.Message, "\n") {
				t.Fatalf("problem %+v", p)
			}
		}
		o.Stdin = strings.NewReader(in)
		again, _ := ReadPaths(t.Context(), []string{"-"}, o)
		seen := map[string]bool{}
		for _, s := range set.Services() {
			if errs := rules.Object(s.DeepCopy()); len(errs) > 0 {
				t.Fatalf("accepted, but Kubernetes says %v", errs)
			}
		}
		for i, p := range set.Pods {
			if seen[p.Namespace+"/"+p.Name] || seen[string(p.UID)] {
				t.Fatalf("pod %s/%s %s comes twice", p.Namespace, p.Name, p.UID)
			}
			seen[p.Namespace+"/"+p.Name], seen[string(p.UID)] = true, true
			if again.Pods[i].UID != p.UID {
				t.Fatalf("uid %s, then %s", p.UID, again.Pods[i].UID)
			}
			if errs, _ := rules.Pod(p.DeepCopy()); len(errs) > 0 {
				t.Fatalf("accepted, but Kubernetes says %v", errs)
			}
		}
	})
}
