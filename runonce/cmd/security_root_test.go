package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/roottest"
)

const secured = `apiVersion: v1
kind: Pod
metadata: {name: secured}
spec:
  terminationGracePeriodSeconds: 2
  securityContext:
    seccompProfile: {type: RuntimeDefault}
    seLinuxOptions: {level: "s0:c1,c2"}
  containers:
  - name: main
    image: localhost/box:1
    args: [facts, -hold]
    volumeMounts:
    - {name: host, mountPath: /rro, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: host, mountPath: /must, readOnly: true, recursiveReadOnly: Enabled}
    - {name: host, mountPath: /ro, readOnly: true}
  - name: root
    image: localhost/box:1
    args: [facts, -hold]
    securityContext: {privileged: true}
  volumes: [{name: host, hostPath: {path: HOST}}]
`

// TestSecured: seccomp, recursively read-only mounts and options for an SELinux that is not
// there, as they are seen from inside.
func TestSecured(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		host := filepath.Join(m.dir, "host")
		if err := os.MkdirAll(filepath.Join(host, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
		mountTmpfs(t, filepath.Join(host, "below"))
		dir := podDir(t, strings.ReplaceAll(secured, "HOST", host))
		_, out := m.try(t, "run", "--max-retries", "1", dir)
		if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil && !strings.Contains(out, "ignoring seLinuxOptions: the machine has no SELinux") {
			t.Errorf("no word of SELinux:\n%s", out)
		}
		v, root := m.facts(t, "secured", "main"), m.facts(t, "secured", "root")
		if v.Seccomp != "filter" || root.Seccomp != "disabled" {
			t.Errorf("seccomp %q, of the privileged container %q", v.Seccomp, root.Seccomp)
		}
		for path, want := range map[string]bool{"/rro": true, "/rro/below": true, "/must/below": true, "/ro": true, "/ro/below": false} {
			if got := v.Mounts[path].ReadOnly; got != want {
				t.Errorf("%s: read-only %t, want %t", path, got, want)
			}
		}
		var modes []v1.RecursiveReadOnlyMode
		for _, s := range m.status(t, "secured").ContainerStatuses[0].VolumeMounts {
			modes = append(modes, *s.RecursiveReadOnly)
		}
		if want := []v1.RecursiveReadOnlyMode{"Enabled", "Enabled", "Disabled"}; !slices.Equal(modes, want) {
			t.Errorf("status %q, want %q", modes, want)
		}
		m.once(t, "down", dir)
	})
}

// TestWhatTheMachineLacks: a pod that needs it is rejected before anything starts, and no
// other.
func TestWhatTheMachineLacks(t *testing.T) {
	roottest.Require(t)
	lame := lameRunc(t)
	t.Setenv("PATH", lame+":"+os.Getenv("PATH"))
	m := newMachine(t, boxImages(t))
	for want, spec := range map[string]string{
		`container "main": seccomp profile RuntimeDefault: the OCI runtime was built without seccomp`: `securityContext: {seccompProfile: {type: RuntimeDefault}}`,
		`volume "v" requested recursive read-only mode, but it is not supported by the runtime`:       `volumes: [{name: v, emptyDir: {}}]`,
		`Cannot enforce AppArmor: AppArmor is not enabled on the host`:                                `securityContext: {appArmorProfile: {type: RuntimeDefault}}`,
		``: `securityContext: {seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}}`,
	} {
		mounts := ""
		if strings.Contains(spec, "volumes") {
			mounts = ", volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]"
		}
		dir := podDir(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: asks}\nspec:\n  restartPolicy: Never\n  %s\n  containers:\n  - {name: main, image: \"localhost/box:1\", args: [exit, \"0\"]%s}\n", spec, mounts))
		code, out := m.try(t, "run", "-o", "wide", "--until", "completed", "--max-retries", "1", dir)
		switch {
		case strings.Contains(want, "AppArmor") && hasAppArmor():
		case want == "" && code != 0, want != "" && (code != 3 || !strings.Contains(out, want)):
			t.Errorf("%s: exit code %d, want %q of\n%s", spec, code, want, out)
		}
		m.once(t, "down", "--all")
	}
}

// lameRunc makes a runc that says that it has neither seccomp nor rro, in a directory.
func lameRunc(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = features ] && exec echo '{\"mountOptions\":[\"ro\"],\"linux\":{}}'\nexec " + program + " \"$@\"\n"
	exectest.Write(t, filepath.Join(dir, "runc"), script)
	return dir
}

func hasAppArmor() bool {
	text, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(text), "Y")
}

// mountTmpfs mounts a file system for as long as the test.
func mountTmpfs(t *testing.T, dir string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}
