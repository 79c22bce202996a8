package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// manifest is the path of the file with the job's pods.
func (w *workspace) manifest(j job) string {
	return filepath.Join(w.disk, "pods-"+j.net+"-"+strconv.Itoa(j.n)+".yaml")
}

// writeManifests writes a file for each job.
func (w *workspace) writeManifests(jobs []job) error {
	for _, j := range jobs {
		if err := os.WriteFile(w.manifest(j), []byte(pods(j)), 0o644); err != nil {
			return fmt.Errorf("writing manifests: %w", err)
		}
	}
	if err := os.WriteFile(w.services(), []byte(services()), 0o644); err != nil {
		return fmt.Errorf("writing manifests: %w", err)
	}
	return nil
}

// services is the path of the file with the Services.
func (w *workspace) services() string { return filepath.Join(w.disk, "services.yaml") }

// groups is how many Services there are, each with its share of the pods.
const groups = 10

func services() string {
	var b strings.Builder
	for i := range groups {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata:
  name: service-%d
spec:
  selector:
    group: g%d
  ports:
  - port: 80
`, i, i)
	}
	return b.String()
}

func pods(j job) string {
	var b strings.Builder
	for i := range j.n {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata:
  name: pod-%03d
  labels:
    group: g%d
spec:
  hostNetwork: %t
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
`, i, i%groups, j.net == netHost, image)
	}
	return b.String()
}
