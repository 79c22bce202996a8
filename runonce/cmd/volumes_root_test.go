package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// written writes the text, with DIR replaced by the directory, to a file of its own.
func written(t *testing.T, text, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// said runs the manifests to their end and returns what the pods' containers wrote, by
// "POD/CONTAINER".
func (m machine) said(t *testing.T, path string) map[string]string {
	t.Helper()
	out := m.once(t, "run", "--until", "completed", "--timeout", "60s", "-o", "json", path)
	var report struct {
		Results []struct {
			Name, Outcome, Message string
			Containers             []struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, r := range report.Results {
		if r.Outcome != "Succeeded" {
			t.Errorf("%s: %s: %s", r.Name, r.Outcome, r.Message)
		}
		for _, c := range r.Containers {
			said[r.Name+"/"+c.Name] = m.log(t, r.Name, c.Name)
		}
	}
	return said
}

// log returns what a container wrote, to stderr too, and earlier runs' before it.
func (m machine) log(t *testing.T, pod, container string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dir, "log", "*_"+pod+"_*", container, "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("logs of %s/%s: %v, %v", pod, container, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4); len(f) == 4 {
			lines = append(lines, f[3])
		}
	}
	return strings.Join(lines, "\n")
}

const claimsOfPods = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: plain}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec: {accessModes: [ReadOnlyMany], storageClassName: manual, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec: {capacity: {storage: 2Gi}, accessModes: [ReadOnlyMany], storageClassName: manual, hostPath: {path: DIR, type: Directory}}
---
apiVersion: v1
kind: Pod
metadata: {name: claims}
spec:
  restartPolicy: Never
  volumes:
  - {name: plain, persistentVolumeClaim: {claimName: plain}}
  - {name: shared, persistentVolumeClaim: {claimName: shared}}
  - {name: tmp, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
  containers:
  - name: writes
    image: localhost/box:1
    args: [do, append /plain/file one, cat /plain/file /shared/given, write /tmp/x x]
    volumeMounts: [{name: plain, mountPath: /plain}, {name: shared, mountPath: /shared}, {name: tmp, mountPath: /tmp}]
---
apiVersion: v1
kind: Pod
metadata: {name: denied}
spec:
  restartPolicy: Never
  volumes:
  - {name: shared, persistentVolumeClaim: {claimName: shared}}
  - {name: plain, persistentVolumeClaim: {claimName: plain, readOnly: true}}
  containers:
  - {name: many, image: localhost/box:1, args: [write, /shared/x, "no"], volumeMounts: [{name: shared, mountPath: /shared}]}
  - {name: readonly, image: localhost/box:1, args: [write, /plain/x, "no"], volumeMounts: [{name: plain, mountPath: /plain}]}
`

// TestClaims: what pods write to claims outlives them and down, volumes of the input are
// used, and what is to be read only cannot be written.
func TestClaims(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "given"), []byte("given\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		both := written(t, claimsOfPods, dir)
		text, err := os.ReadFile(both)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.SplitAfterN(string(text), "\n---\n", 5)
		fine := written(t, strings.Join(parts[:4], ""), dir)
		bad := written(t, strings.Join(append(parts[:3:3], parts[4]), ""), dir)

		if got := m.said(t, fine)["claims/writes"]; got != "one\ngiven" {
			t.Errorf("the first run said %q", got)
		}
		left, err := filepath.Glob(filepath.Join(m.dir, "root", "pods", "*", "volumes", "*", "tmp", "x"))
		if err != nil || len(left) != 1 {
			t.Errorf("the ephemeral volume: %v, %v", left, err)
		}
		m.once(t, "down", "--all")
		if got := m.said(t, fine)["claims/writes"]; got != "one\ngiven\n"+strings.Repeat("one\n", 2)+"given" {
			t.Errorf("the second run said %q", got)
		}
		data, err := os.ReadFile(filepath.Join(m.dir, "root", "claims", "default", "plain", "file"))
		if err != nil || string(data) != strings.Repeat("one\n", 2) {
			t.Errorf("the claim's data: %q, %v", data, err)
		}
		m.fails(t, 1, "run", "--until", "completed", bad)
		for _, c := range []string{"many", "readonly"} {
			if got := m.log(t, "denied", c); !strings.Contains(got, "read-only file system") {
				t.Errorf("%s said %q", c, got)
			}
		}
		m.once(t, "down", "--all")
		elsewhere := t.TempDir()
		m.once(t, "run", "--until", "completed", "--claims-dir", elsewhere, fine)
		if _, err := os.Stat(filepath.Join(elsewhere, "default", "plain", "file")); err != nil {
			t.Error(err)
		}
	})
}
