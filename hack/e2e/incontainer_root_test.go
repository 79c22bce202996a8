package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// ciJob returns a pod whose container runs the program with these arguments, as the first process of a CI job. It sees the
// programs of the machine, /pods with the manifests of a directory, and its root is in a volume.
func ciJob(t testing.TB, securityContext, pods string, args ...string) string {
	t.Helper()
	path, archives := built(t)
	from := map[string]string{"/runonce": path, "/images": archives, "/pods": pods}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64"} {
		if at, err := filepath.EvalSymlinks(dir); err == nil {
			from[dir] = at
		}
	}
	var mounts, volumes []string
	for at, of := range from {
		name := "v" + strings.ReplaceAll(at, "/", "-")
		mounts = append(mounts, fmt.Sprintf("{name: %s, mountPath: %s, readOnly: true}", name, at))
		volumes = append(volumes, fmt.Sprintf("{name: %s, hostPath: {path: %s}}", name, of))
	}
	args = append([]string{"/runonce", args[0], "--images-dir=/images", "--capacity=cpu=8,memory=8Gi", "--settle=0"}, args[1:]...)
	command, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 20
  containers:
  - name: main
    image: localhost/box:1
    command: %s
    env: [{name: PATH, value: %q}]
    securityContext: %s
    volumeMounts: [{name: root, mountPath: /var/lib/runonce}, %s]
  volumes: [{name: root, emptyDir: {}}, %s]
`, command, os.Getenv("PATH"), securityContext, strings.Join(mounts, ", "), strings.Join(volumes, ", "))
}

// TestInPrivilegedContainer: in a privileged container, pods run and are removed, and the job passes on the exit code of
// the tests.
func TestInPrivilegedContainer(t *testing.T) {
	b := newBox(t, "")
	web := strings.Replace(pod("web", "Always", "web", "-addr", ":80", "-dir", "/"), "hostNetwork: true", "hostname: web", 1)
	pods := directory(t, web, pod("test", "Never", "exit", "7"))
	r := b.up(t, directory(t, ciJob(t, "{privileged: true}", pods, "run", "--rm", "--until=completed", "--exit-code-from=test", "/pods")), 1, "--until", "completed")
	c := r.report.Results[0].Containers[0]
	if c.ExitCode == nil || *c.ExitCode != 7 || !strings.Contains(strings.Join(c.LogTail, "\n"), "default/web: Stopping") {
		t.Errorf("the job: %+v\n%s", c, r.stderr)
	}
}

// TestContainerIsKilled: with a privileged container end the pods in it, which are in its cgroup, and the machine is as it
// was before.
func TestContainerIsKilled(t *testing.T) {
	b := newBox(t, "")
	up := strings.Replace(pod("up", "Never", "sleep"), "hostNetwork: true", "hostname: up", 1)
	b.up(t, directory(t, ciJob(t, "{privileged: true}", directory(t, up), "run", "--until=completed", "--timeout=4m", "/pods")), 0)
	var inner int
	if !eventually(func() bool { inner = b.processOf(t, "/bin/box sleep"); return inner != 0 }) {
		t.Fatalf("the pod in the container does not run:\n%s", b.run(t, "logs", "job").stdout)
	}
	outer := b.processOf(t, "/runonce run ")
	of, in := cgroupsOf(t, outer), cgroupsOf(t, inner)
	for i := range of {
		if own := strings.TrimSuffix(of[i], "/init"); !strings.HasPrefix(in[i], own) {
			t.Errorf("the pod in the container has the cgroup %s, which is not in %s", in[i], own)
		}
	}
	if err := unix.Kill(outer, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := b.run(t, "wait", "--for", "completed", "--timeout", "1m", "job"); r.code != 1 {
		t.Errorf("wait: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if pid := b.processOf(t, "/bin/box sleep"); pid != 0 {
		t.Errorf("process %d of the pod in the container is left", pid)
	}
}

// processOf returns a process that sees files of the box and whose command line begins like this, 0 if there is none.
func (b *box) processOf(t testing.TB, command string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		line, _ := os.ReadFile(dir + "/cmdline") // or the process has ended
		mounts, _ := os.ReadFile(dir + "/mountinfo")
		if strings.HasPrefix(strings.ReplaceAll(string(line), "\x00", " "), command) && strings.Contains(string(mounts), filepath.Base(b.dir)) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// cgroupsOf returns the cgroups of a process, in the order of the hierarchies.
func cgroupsOf(t testing.TB, pid int) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// TestInUnprivilegedContainer: in any other container, a run ends with code 4, says why, and has started nothing.
func TestInUnprivilegedContainer(t *testing.T) {
	for _, c := range []struct{ name, securityContext, text string }{
		{"default", "{}", "runonce: container engine: root lacks CAP_SYS_ADMIN, CAP_NET_ADMIN, which starting containers takes: in a container, start that one privileged (docker run --privileged)"},
		{"capabilities", "{capabilities: {add: [ALL]}}", "is mounted read-only: in a container, start that one privileged (docker run --privileged)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, "")
			pods := directory(t, pod("test", "Never", "exit", "7"))
			r := b.up(t, directory(t, ciJob(t, c.securityContext, pods, "run", "/pods")), 1, "--until", "completed")
			got := r.report.Results[0].Containers[0]
			if got.ExitCode == nil || *got.ExitCode != 4 || len(got.LogTail) != 1 || !strings.HasSuffix(got.LogTail[0], c.text) {
				t.Errorf("the job: %+v\n%s", got, r.stderr)
			}
			root, err := filepath.Glob(b.dir + "/root/pods/*/volumes/*/root")
			if err != nil || len(root) != 1 {
				t.Fatalf("the root of the job: %v, %v", root, err)
			}
			if started, err := filepath.Glob(root[0] + "/io.containerd.*"); err != nil || len(started) > 0 {
				t.Errorf("containerd was started: %v, %v", started, err)
			}
		})
	}
}
