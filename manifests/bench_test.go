package manifests

import (
	"fmt"
	"testing"
	"testing/fstest"
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
