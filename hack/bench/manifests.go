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
	return nil
}

func pods(j job) string {
	var b strings.Builder
	for i := range j.n {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Pod
metadata:
  name: pod-%03d
spec:
  hostNetwork: %t
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: %s
    imagePullPolicy: Never
`, i, j.net == netHost, image)
	}
	return b.String()
}
