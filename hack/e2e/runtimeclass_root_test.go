package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/exectest"
)

const classed = `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: other}
handler: other
overhead: {podFixed: {cpu: 250m, memory: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: classed}
spec:
  runtimeClassName: other
  restartPolicy: Never
  hostNetwork: true
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: first, image: localhost/box:1, args: [echo, prepared]}
  containers:
  - {name: job, image: localhost/box:1, args: [exit, "0", over]}
  - {name: term, image: localhost/box:1, args: [do, error spoken, listen], tty: true, stdin: true}
  - name: main
    image: localhost/box:1
    args: [trap]
    resources: {limits: {cpu: 500m, memory: 64Mi}}
    lifecycle: {postStart: {exec: {command: [/bin/box, echo, hooked]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  restartPolicy: Never
  hostNetwork: true
  terminationGracePeriodSeconds: 5
  containers: [{name: main, image: localhost/box:1, args: [trap]}]
`

// crun writes a script that runs the machine's crun and logs the call. crun does not support
// machines where cgroup v1 and v2 share the controllers, so the script hides v2 from it.
func crun(t *testing.T) (path, calls string) {
	t.Helper()
	program, err := exec.LookPath("crun")
	if err != nil {
		t.Fatalf("%v: hack/setup.sh test installs it", err)
	}
	dir := t.TempDir()
	path, calls = filepath.Join(dir, "crun"), filepath.Join(dir, "calls")
	script := fmt.Sprintf(`#!/bin/sh
echo "$*" >>%s
exec unshare --mount --propagation slave sh -c 'umount /sys/fs/cgroup/unified 2>/dev/null; exec %s "$@"' crun "$@"
`, calls, program)
	exectest.Write(t, path, script)
	return path, calls
}

// TestRuntimeClassCrun: a pod with a RuntimeClass runs in the OCI runtime of its handler, and
// other pods do not.
func TestRuntimeClassCrun(t *testing.T) {
	everywhere(t, func(t *testing.T, b *box) {
		path, calls := crun(t)
		b.lifeOfClass(t, "other="+path)
		text, err := os.ReadFile(calls)
		if err != nil {
			t.Fatal(err)
		}
		// Before its first use it made one for a trial.
		if n := strings.Count(string(text), " create "); n != 5 {
			t.Errorf("crun made %d containers, want one and the 4 of the class' pod:\n%s", n, text)
		}
	})
}

// TestRuntimeClassShim: a handler can use another shim than ours.
func TestRuntimeClassShim(t *testing.T) {
	test := func(t *testing.T, b *box) {
		b.lifeOfClass(t, otherShim(t, daemon.Current))
	}
	embedded(t, test)
	daemons(t, test, daemon.Current)
}

// otherShim returns the flag for a handler "other" with the shim of a version of containerd.
func otherShim(t *testing.T, v daemon.Version) string {
	t.Helper()
	bin := daemon.Programs(t, v)
	return "other=" + filepath.Join(bin, "containerd-shim-runc-v2")
}

// lifeOfClass starts, watches and stops the pods with the given handler.
func (b *box) lifeOfClass(t *testing.T, handler string) {
	t.Helper()
	dir := directory(t, classed)
	r := b.up(t, dir, 0, "--runtime-handler", handler)
	if diff := cmp.Diff([]string{"classed=Running", "plain=Running"}, r.report.outcomes()); diff != "" {
		t.Fatalf("outcomes (-want +got):\n%s\n%s", diff, r.stdout)
	}
	b.awaitLog(t, "classed", "first", "stdout F prepared")
	b.awaitLog(t, "classed", "job", "stdout F over")
	b.awaitLog(t, "classed", "term", "stdout F spoken")
	b.awaitLog(t, "classed", "main", "ready")
	b.awaitExit(t, 1, 0)
	ps := b.run(t, "ps", "-o", "json")
	if c := ps.report.Pods[0].Containers; len(c) < 2 || c[len(c)-1].State != "Running" {
		t.Errorf("ps: containers %+v; want the last to run", c)
	}
	if r := b.run(t, "down", dir); r.code != 0 {
		t.Fatalf("down: exit code %d\n%s", r.code, r.stderr)
	}
	if text := b.logOf(t, "classed", "main"); !strings.Contains(text, "got signal 15") {
		t.Errorf("main was killed without a stop signal:\n%s", text)
	}
}

// awaitExit waits until ps shows that a container of the first pod has exited, and checks its
// exit code.
func (b *box) awaitExit(t *testing.T, container, code int) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		r := b.run(t, "ps", "-o", "json")
		if r.code != 0 || len(r.report.Pods) == 0 {
			t.Fatalf("ps: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		if c := r.report.Pods[0].Containers[container]; c.ExitCode != nil {
			if *c.ExitCode != code || c.State != "Terminated" {
				t.Errorf("ps shows %s with exit code %d, want Terminated with %d", c.State, *c.ExitCode, code)
			}
			return
		}
	}
	t.Error("the container did not exit")
}

// TestRuntimeClassExitUnseen: the exit code of a container with another shim is known even if
// no run was watching.
func TestRuntimeClassExitUnseen(t *testing.T) {
	b := newBox(t, "")
	handler := otherShim(t, daemon.Current)
	mark := filepath.Join(t.TempDir(), "go")
	dir := directory(t, fmt.Sprintf(`apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: other}
handler: other
---
apiVersion: v1
kind: Pod
metadata: {name: unseen}
spec:
  runtimeClassName: other
  restartPolicy: Never
  hostNetwork: true
  containers:
  - {name: main, image: localhost/box:1, args: [do, "await /host/go", "exit 7 over"], volumeMounts: [{name: host, mountPath: /host}]}
  volumes: [{name: host, hostPath: {path: %s}}]
`, filepath.Dir(mark)))
	b.up(t, dir, 0, "--runtime-handler", handler)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.awaitLog(t, "unseen", "main", "stdout F over")
	b.awaitEnd(t)
	b.awaitExit(t, 0, 7)
	b.awaitExit(t, 0, 7)
}

func TestRuntimeClassRefused(t *testing.T) {
	b := newBox(t, "")
	r := b.up(t, directory(t, classed), 3)
	p := r.report.Results[0]
	if p.Outcome != "Rejected" || p.Reason != "FailedCreatePodSandBox" || !strings.Contains(p.Message, `no runtime for "other" is configured`) {
		t.Errorf("%+v", p)
	}
	for flag, want := range map[string]string{
		"other=/no/such/program":          `finding the OCI runtime "/no/such/program"`,
		"other=io.containerd.nonesuch.v1": `looking for its shim: exec: "containerd-shim-nonesuch-v1": executable file not found`,
	} {
		r := b.run(t, "run", b.upArgs(t, directory(t, classed), "--runtime-handler", flag)...)
		if r.code != 4 || !strings.Contains(r.stderr, want) {
			t.Errorf("--runtime-handler %s: exit code %d, want 4 and %q\n%s", flag, r.code, want, r.stderr)
		}
	}
}
