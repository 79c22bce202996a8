package manifests

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

const clusterInput = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: other}
data: {a: b}
---
apiVersion: v1
kind: Node
metadata: {name: somewhere}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 1Gi}}, volumeName: of-the-cluster}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: runner}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}, finalizers: [example.com/hold]}
spec:
  serviceAccountName: runner
  priorityClassName: of-the-cluster
  runtimeClassName: of-the-cluster
  nodeName: worker-7
  imagePullSecrets: [{name: of-the-cluster}]
  containers:
  - name: main
    image: registry.example/web:1
    envFrom: [{configMapRef: {name: of-the-cluster}}]
    volumeDevices: [{name: data, devicePath: /dev/xvda}]
    volumeMounts: [{name: token, mountPath: /token}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: token, projected: {sources: [{serviceAccountToken: {path: token}}]}}
`

// TestCluster: what a cluster has need not be in the input, and what only a cluster has a use for
// is read as well.
func TestCluster(t *testing.T) {
	t.Parallel()
	set, err := ReadPaths(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader(clusterInput), Cluster: true, Namespace: "team"})
	if err != nil || len(set.Pods) != 1 {
		t.Fatalf("%v, %d pods", err, len(set.Pods))
	}
	if w := set.Warnings; len(w) != 1 || !strings.Contains(w[0].Message, "Node is not supported and was ignored") {
		t.Errorf("warnings: %v", w)
	}
	pod := set.Pods[0]
	if pod.Namespace != "team" || pod.UID == "" || pod.Spec.Priority != nil || pod.Spec.NodeName != "worker-7" || len(pod.Finalizers) != 1 {
		t.Errorf("the pod: %+v", pod)
	}
	want := map[string]string{podspec.AnnotationSource: "<stdin>:29", podspec.AnnotationPath: "-"}
	if got := fmt.Sprint(pod.Annotations); got != fmt.Sprint(want) {
		t.Errorf("annotations %s, want %v", got, want)
	}
	var names []string
	for _, o := range set.Objects() {
		names = append(names, fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()))
		if o.GetAnnotations()[podspec.AnnotationPath] != "-" {
			t.Errorf("%s does not say where it comes from", o.GetName())
		}
	}
	if got, want := strings.Join(names, "\n"), "*v1.Namespace /other\n*v1.ServiceAccount team/runner\n*v1.ConfigMap other/settings\n"+
		"*v1.PersistentVolumeClaim team/data\n*v1.Service team/web"; got != want {
		t.Errorf("objects\n%s", got)
	}
	if set.Node != nil {
		t.Error("the input has a node")
	}
}

// TestClusterStrictness: errors are errors on a cluster, too.
func TestClusterStrictness(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		strings.Replace(clusterInput, "port: 80", "prot: 80", 1):                                       "unknown field",
		strings.Replace(clusterInput, "image: registry", "imgae: registry", 1):                         "unknown field",
		strings.Replace(clusterInput, "{a: b}", "{'a b': c}", 1):                                       "a valid config key",
		strings.Replace(clusterInput, "{name: of-the-cluster}}]", "{name: of-the-cluster}, x: 1}]", 1): "unknown field",
	} {
		_, err := ReadPaths(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader(text), Cluster: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestClusterClaims: the claims of a StatefulSet are the input's, those of a pod's ephemeral
// volumes are the cluster's.
func TestClusterClaims(t *testing.T) {
	t.Parallel()
	const text = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  serviceName: db
  template:
    metadata: {labels: {app: db}}
    spec:
      containers: [{name: main, image: registry.example/db:1}]
      volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
	set, err := ReadPaths(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader(text), Cluster: true})
	if err != nil || len(set.Pods) != 1 {
		t.Fatalf("%v, %d pods", err, len(set.Pods))
	}
	objects := set.Objects()
	if len(objects) != 1 {
		t.Fatalf("objects: %+v", objects)
	}
	if claim, ok := objects[0].(*v1.PersistentVolumeClaim); !ok || claim.Name != "data-db-0" || claim.Kind != "PersistentVolumeClaim" {
		t.Errorf("objects: %+v", objects)
	}
}

// TestClusterJob: the pods of a Job that run one after the other need no room for all of them on a cluster.
func TestClusterJob(t *testing.T) {
	t.Parallel()
	const text = `
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 3
  parallelism: 1
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: registry.example/work:1}]}}
`
	set, err := ReadPaths(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader(text), Cluster: true})
	if err != nil || len(set.Pods) != 3 || len(set.Warnings) > 0 {
		t.Errorf("%v, %d pods, warnings %v", err, len(set.Pods), set.Warnings)
	}
}

// TestClusterDefaultAccount: a pod that names no service account may use the token of the default one.
func TestClusterDefaultAccount(t *testing.T) {
	t.Parallel()
	text := strings.Replace(clusterInput, "  serviceAccountName: runner\n", "", 1)
	set, err := ReadPaths(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader(text), Cluster: true})
	if err != nil || text == clusterInput || set.Pods[0].Spec.ServiceAccountName != "" {
		t.Error(err)
	}
}
