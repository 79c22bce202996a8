package cmd_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/volume"
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
	out := m.once(t, "run", "--until", "completed", "--timeout", "5m", "-o", "json", path)
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

// log returns what the newest instance of a container wrote, to stderr too.
func (m machine) log(t *testing.T, pod, container string) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(m.dir, "log", "*_"+pod+"_*", container))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("logs of %s/%s: %v, %v", pod, container, dirs, err)
	}
	path, err := logs.Newest(dirs[0], false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
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
		if got := m.said(t, fine)["claims/writes"]; got != strings.Repeat("one\n", 2)+"given" {
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

const propagating = `
apiVersion: v1
kind: Pod
metadata: {name: mounts}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 2
  volumes:
  - {name: host, hostPath: {path: DIR}}
  - {name: work, emptyDir: {}}
  containers:
  - name: private
    image: localhost/box:1
    args: [do, await /host/seen, gone /host/outside/file, gone /data/inside/file, echo nothing, sleep]
    volumeMounts: [{name: host, mountPath: /host}, {name: work, mountPath: /data}]
  - name: mounter
    image: localhost/box:1
    securityContext: {privileged: true}
    args: [do, mount /host/inside, write /host/inside/file from the container, mount /data/inside, write /data/inside/file from beside, sleep]
    volumeMounts:
    - {name: host, mountPath: /host, mountPropagation: Bidirectional}
    - {name: work, mountPath: /data, mountPropagation: Bidirectional}
  - name: slave
    image: localhost/box:1
    args: [do, await /host/outside/file, cat /host/outside/file, await /data/inside/file, cat /data/inside/file, sleep]
    volumeMounts:
    - {name: host, mountPath: /host, mountPropagation: HostToContainer}
    - {name: work, mountPath: /data, mountPropagation: HostToContainer}
`

// TestMountPropagation: what is mounted on one side is seen on the other where the pod
// asks for it, also through a volume of the pod where the machine's own mounts are
// private, and nothing of it is left afterwards.
func TestMountPropagation(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		host := t.TempDir()
		shared(t, host)
		p := m.start(t, written(t, propagating, host))
		waitFor(t, filepath.Join(host, "inside", "file"))
		outside := filepath.Join(host, "outside")
		if err := errors.Join(os.Mkdir(outside, 0o755), unix.Mount("tmpfs", outside, "tmpfs", 0, ""), os.WriteFile(filepath.Join(outside, "file"), []byte("from the host\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		m.says(t, "mounts", "slave", "from the host\nfrom beside")
		if err := os.WriteFile(filepath.Join(host, "seen"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		m.says(t, "mounts", "private", "nothing")
		if code, got := p.end(t); code != 0 {
			t.Errorf("exit code %d: %v", code, got)
		}
		m.once(t, "down", "--all")
		if err := errors.Join(volume.UnmountBelow(volume.HostMounts{}, outside), volume.UnmountBelow(volume.HostMounts{}, filepath.Join(host, "inside"))); err != nil {
			t.Error(err)
		}
	})
}

// shared makes the directory a mount that shares its mount events.
func shared(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(unix.Mount("tmpfs", dir, "tmpfs", 0, ""), unix.Mount("", dir, "", unix.MS_SHARED, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := volume.UnmountBelow(volume.HostMounts{}, dir); err != nil {
			t.Error(err)
		}
	})
}

// waitFor waits until the file is there.
func waitFor(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// says waits until the container has written the text.
func (m machine) says(t *testing.T, pod, container, want string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(m.dir, "log", "*_"+pod+"_*", container, "*.log"))
		if len(files) > 0 && strings.Contains(m.log(t, pod, container), want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s/%s has not said %q: %v", pod, container, want, files)
		}
	}
}

// TestNFS: an export is mounted by the helper of this machine, and a pod is rejected
// before anything starts where there is none.
func TestNFS(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		export, bin := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(export, "given"), []byte("exported\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		pods := written(t, netPods, "")
		if !volume.HasNFS() {
			out := m.fails(t, 3, "run", pods)
			if !strings.Contains(out, "MissingMountHelper") {
				t.Errorf("without a helper:\n%s", out)
			}
		}
		helper := "#!/bin/sh\necho \"$@\" >>" + bin + "/calls\nexec mount --bind " + export + " \"$2\"\n"
		exectest.Write(t, filepath.Join(bin, "mount.nfs"), helper)
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		said := m.said(t, pods)
		if got := said["net/main"]; got != strings.TrimSpace(strings.Repeat("exported\n", 2)) {
			t.Errorf("it said %q", got)
		}
		calls, err := os.ReadFile(filepath.Join(bin, "calls"))
		if err != nil || !strings.Contains(string(calls), "files.example:/srv ") || !strings.Contains(string(calls), "-o ro,nfsvers=4.1") {
			t.Errorf("the helper was called with %q, %v", calls, err)
		}
	})
}

const netPods = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec: {capacity: {storage: 2Gi}, accessModes: [ReadWriteMany], mountOptions: [nfsvers=4.1], nfs: {server: files.example, path: /other}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: net}
spec:
  restartPolicy: Never
  volumes:
  - {name: share, nfs: {server: files.example, path: /srv}}
  - {name: claim, persistentVolumeClaim: {claimName: shared, readOnly: true}}
  containers:
  - name: main
    image: localhost/box:1
    args: [cat, /share/given, /claim/given]
    volumeMounts: [{name: share, mountPath: /share}, {name: claim, mountPath: /claim}]
`

const greedy = `
apiVersion: v1
kind: Pod
metadata: {name: volume}
spec:
  terminationGracePeriodSeconds: 30
  volumes: [{name: work, emptyDir: {sizeLimit: 1Mi}}]
  containers:
  - {name: main, image: "localhost/box:1", args: [do, fill /data/file 3, stay], volumeMounts: [{name: work, mountPath: /data}]}
---
apiVersion: v1
kind: Pod
metadata: {name: layer}
spec:
  containers:
  - {name: main, image: "localhost/box:1", args: [do, fill /tmp-file 3, stay], resources: {limits: {ephemeral-storage: 2Mi}}}
  - {name: beside, image: "localhost/box:1", args: [sleep], resources: {limits: {ephemeral-storage: 20Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: modest}
spec:
  volumes: [{name: work, emptyDir: {sizeLimit: 8Mi}}, {name: host, hostPath: {path: DIR}}]
  containers:
  - {name: main, image: "localhost/box:1", args: [do, fill /data/file 3, write /host/modest done, sleep], resources: {limits: {ephemeral-storage: 16Mi}}, volumeMounts: [{name: work, mountPath: /data}, {name: host, mountPath: /host}]}
---
apiVersion: v1
kind: Pod
metadata: {name: clock}
spec:
  restartPolicy: Never
  volumes: [{name: host, hostPath: {path: DIR}}]
  containers:
  - {name: main, image: "localhost/box:1", args: [await, /host/go], volumeMounts: [{name: host, mountPath: /host}]}
`

// evicted matches a row of ps.
var evicted = regexp.MustCompile(`(?m)^(volume|layer) .* Evicted`)

// TestEviction: pods that use more local storage than they may are ended while a run
// watches them, in the kubelet's words, and others are left alone.
func TestEviction(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		host := t.TempDir()
		p := m.start(t, "--until", "completed", "--timeout", "5m", written(t, greedy, host))
		waitFor(t, filepath.Join(host, "modest"))
		for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			_, text := m.try(t, "ps")
			if len(evicted.FindAllString(text, -1)) == 2 {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("ps says\n%s", text)
				break
			}
		}
		if err := os.WriteFile(filepath.Join(host, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		code, got := p.end(t)
		if diff := cmp.Diff([]string{"volume Failed Evicted", "layer Failed Evicted", "modest Ready", "clock Succeeded"}, got); diff != "" || code != 1 {
			t.Errorf("exit code %d (-want +got):\n%s", code, diff)
		}
		for _, want := range []string{
			`Usage of EmptyDir volume \"work\" exceeds the limit \"1Mi\". `,
			`Container main exceeded its local ephemeral storage limit \"2Mi\". `,
		} {
			if !strings.Contains(p.stdout.String(), want) {
				t.Errorf("the report does not say %s", want)
			}
		}
	})
}
