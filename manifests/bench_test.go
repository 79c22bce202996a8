package manifests

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// realistic is a pod of realistic size.
const realistic = `apiVersion: v1
kind: Pod
metadata:
  name: web-%[1]d
  labels: {app: web, tier: front}
spec:
  restartPolicy: Always
  initContainers:
  - name: init
    image: registry.example/init:1.2
    command: [sh, -c, "echo hello > /data/index.html"]
    volumeMounts:
    - {name: data, mountPath: /data}
  containers:
  - name: web
    image: registry.example/web:1.2
    args: ["--port=8080", "--root=/data"]
    ports:
    - {containerPort: 8080, hostPort: %[2]d, name: http}
    env:
    - {name: MODE, value: production}
    - name: POD
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    resources:
      requests: {cpu: 100m, memory: 64Mi}
      limits: {cpu: 200m, memory: 128Mi}
    volumeMounts:
    - {name: data, mountPath: /data, readOnly: true}
    securityContext: {runAsUser: 1000, allowPrivilegeEscalation: false}
  volumes:
  - {name: data, emptyDir: {}}
`

func many(n int) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := range n {
		fsys[fmt.Sprintf("%05d.yaml", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, realistic, i, 1+i%65535)}
	}
	return fsys
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			fsys := many(n)
			b.ReportAllocs()
			for b.Loop() {
				set, err := Read(fsys)
				if err != nil || len(set.Pods) != n {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadOne(b *testing.B) {
	fsys := many(1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(fsys); err != nil {
			b.Fatal(err)
		}
	}
}

// inputs are inputs of a number of items whose reading could take more than proportionally longer
// for more items.
var inputs = []struct {
	name  string
	of    func(n int) string
	wrong bool
}{
	{"documents", func(n int) string {
		return documentsOf(n, func(i int) string { return pod(fmt.Sprintf("p-%d", i), "") })
	}, false},
	{"wrong-documents", func(n int) string {
		return documentsOf(n, func(i int) string { return pod(fmt.Sprintf("p-%d", i), "  nope: 1\n") })
	}, true},
	{"broken-documents", func(n int) string { return documentsOf(n, func(int) string { return "a: [\n" }) }, true},
	{"list", func(n int) string {
		return listOf(n, func(i int) string { return pod(fmt.Sprintf("p-%d", i), "") })
	}, false},
	{"warnings", func(n int) string {
		return listOf(n, func(i int) string { return pod(fmt.Sprintf("p-%d", i), "  serviceAccountName: a\n") })
	}, false},
	{"ignored-kinds", func(n int) string {
		return listOf(n, func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: s-%d}\n", i)
		})
	}, false},
	{"services", func(n int) string {
		return listOf(n/2, func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s-%d}\nspec: {selector: {a: b, app: a-%d}, ports: [{port: 80, targetPort: http}]}\n", i, i)
		}) + "---\n" + listOf(n/2, func(i int) string {
			return strings.Replace(pod(fmt.Sprintf("p-%d", i), ""), "}", fmt.Sprintf(", labels: {a: b, app: a-%d}}", i), 1)
		})
	}, false},
	{"services-without-pods", func(n int) string {
		return listOf(n/2, func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: s-%d}\nspec: {selector: {app: b-%d}, ports: [{port: 80}]}\n", i, i)
		}) + "---\n" + listOf(n/2, func(i int) string {
			return strings.Replace(pod(fmt.Sprintf("p-%d", i), ""), "}", fmt.Sprintf(", labels: {app: a-%d}}", i), 1)
		})
	}, false},
	{"deployments", workloadsOf("apps/v1", "Deployment", "  selector: {matchLabels: {a: b}}\n"), false},
	{"daemonsets", workloadsOf("apps/v1", "DaemonSet", "  selector: {matchLabels: {a: b}}\n"), false},
	{"jobs", workloadsOf("batch/v1", "Job", ""), false},
	{"replicas", func(n int) string {
		return listOf(n/500, func(i int) string {
			return aWorkload("apps/v1", "Deployment", i, "  replicas: 500\n  selector: {matchLabels: {a: b}}\n")
		})
	}, false},
	{"config-maps", referencesOf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: o-%d}\ndata: {k: v}\n",
		"  volumes: [{name: v, configMap: {name: o-%d}}]\n"), false},
	{"priority-classes", referencesOf("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: o-%d}\nvalue: 1\n",
		"  priorityClassName: o-%d\n"), false},
	{"runtime-classes", referencesOf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: o-%d}\nhandler: runc\n",
		"  runtimeClassName: o-%d\n"), false},
	{"claims", referencesOf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: o-%d}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
		"  volumes: [{name: v, persistentVolumeClaim: {claimName: o-%d}}]\n"), false},
	{"missing-runtime-classes", referencesOf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: x-%d}\nhandler: runc\n",
		"  runtimeClassName: o-%d\n"), true},
	{"missing-keys", func(n int) string {
		var b strings.Builder
		b.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: o}\ndata:\n")
		for i := range n / 2 {
			fmt.Fprintf(&b, "  k-%d: v\n", i)
		}
		return b.String() + "---\n" + listOf(n/2, func(i int) string {
			return pod(fmt.Sprintf("p-%d", i), fmt.Sprintf("  volumes: [{name: v, configMap: {name: o, items: [{key: x-%d, path: p}]}}]\n", i))
		})
	}, true},
	{"unknown-fields", func(n int) string {
		return listOf(n, func(i int) string { return pod(fmt.Sprintf("p-%d", i), "  nope: 1\n") })
	}, true},
	{"untyped", func(n int) string { return listOf(n, func(int) string { return "kind: Pod\n" }) }, true},
	{"same-name", func(n int) string { return listOf(n, func(int) string { return pod("p", "") }) }, true},
	{"generated-names", func(n int) string {
		return listOf(n, func(int) string { return "apiVersion: v1\nkind: Secret\nmetadata: {generateName: s-}\n" })
	}, false},
	{"missing-objects", func(n int) string {
		return listOf(n/2, func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config-%d}\n", i)
		}) + "---\n" + listOf(n/2, func(i int) string {
			return pod(fmt.Sprintf("p-%d", i), fmt.Sprintf("  volumes: [{name: v, configMap: {name: other-%d}}]\n", i))
		})
	}, true},
	{"missing-priorities", func(n int) string {
		return listOf(n/2, func(i int) string {
			return fmt.Sprintf("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: class-%d}\nvalue: %d\n", i, i)
		}) + "---\n" + listOf(n/2, func(i int) string {
			return pod(fmt.Sprintf("p-%d", i), fmt.Sprintf("  priorityClassName: other-%d\n", i))
		})
	}, true},
	{"unbound-claims", func(n int) string {
		return listOf(n/2, func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c-%d}\nspec: {accessModes: [ReadWriteMany], storageClassName: x, resources: {requests: {storage: 1Gi}}}\n", i)
		}) + "---\n" + listOf(n/2, func(i int) string {
			return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v-%d}\nspec: {accessModes: [ReadWriteOnce], storageClassName: x, capacity: {storage: 1Gi}, hostPath: {path: /v}}\n", i)
		})
	}, false},
}

// documentsOf returns n documents.
func documentsOf(n int, document func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("---\n" + document(i))
	}
	return b.String()
}

// referencesOf returns a List of n/2 objects and one of n/2 pods that each refer to one of them.
func referencesOf(object, spec string) func(n int) string {
	return func(n int) string {
		return listOf(n/2, func(i int) string { return fmt.Sprintf(object, i) }) + "---\n" + listOf(n/2, func(i int) string {
			return pod(fmt.Sprintf("p-%d", i), fmt.Sprintf(spec, i))
		})
	}
}

// workloadsOf returns a List of n workloads.
func workloadsOf(apiVersion, kind, spec string) func(n int) string {
	return func(n int) string {
		return listOf(n, func(i int) string { return aWorkload(apiVersion, kind, i, spec) })
	}
}

func aWorkload(apiVersion, kind string, i int, spec string) string {
	restart := "Always"
	if kind == "Job" {
		restart = "Never"
	}
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: w-%d}\nspec:\n%s  template:\n    metadata: {labels: {a: b}}\n"+
		"    spec: {restartPolicy: %s, containers: [{name: c, image: i}]}\n", apiVersion, kind, i, spec, restart)
}

// listOf returns a List of n items.
func listOf(n int, item func(i int) string) string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range n {
		b.WriteString("- " + strings.ReplaceAll(strings.TrimSpace(item(i)), "\n", "\n  ") + "\n")
	}
	return b.String()
}

// BenchmarkGrowth reports how many times longer eight times as many items take: 8 is linear.
func BenchmarkGrowth(b *testing.B) {
	for _, in := range inputs {
		b.Run(in.name, func(b *testing.B) {
			const few, times = 1_000, 8
			var took [2]time.Duration
			for b.Loop() {
				for i, n := range []int{few, few * times} {
					fsys := dir("f", in.of(n))
					start := time.Now()
					if _, err := Read(fsys); (err != nil) != in.wrong {
						b.Fatal(err)
					}
					took[i] += time.Since(start)
				}
			}
			b.ReportMetric(float64(took[1])/float64(took[0]), "growth")
			b.ReportMetric(float64(took[1].Milliseconds())/float64(b.N), "large-ms")
		})
	}
}
