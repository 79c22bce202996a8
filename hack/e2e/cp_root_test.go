package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/roottest"
)

// cp copies, and checks the exit code and that a message has the text.
func (b *box) cp(t *testing.T, code int, message string, args ...string) {
	t.Helper()
	if r := b.run(t, "cp", args...); r.code != code || !strings.Contains(r.stderr, message) {
		t.Errorf("cp %q: exit code %d, %q, want %d, %q", args, r.code, r.stderr, code, message)
	}
}

// stat returns what the container of the pod web says of its files.
func (b *box) stat(t *testing.T, paths ...string) map[string]insideFile {
	t.Helper()
	r := b.run(t, "exec", "web", "--", "/bin/box", "facts", "-stat", strings.Join(paths, ","))
	var facts struct{ Files map[string]insideFile }
	if err := json.Unmarshal([]byte(r.stdout), &facts); err != nil {
		t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	return facts.Files
}

// insideFile is a file as a container sees it.
type insideFile struct {
	UID, GID                   int
	Mode, Content, Error, Link string
}

const cpPods = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 2
  initContainers:
  - name: first
    image: localhost/box:1
    args: [do, write /own computed, write /data/shared computed]
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /fixed, readOnly: true}]
  containers:
  - name: main
    image: localhost/box:1
    args: [sleep]
    securityContext: {readOnlyRootFilesystem: true, runAsUser: 1000}
    volumeMounts: [{name: data, mountPath: /data}, {name: memory, mountPath: /memory}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
`

// TestCp: a container gets and gives what its own root could write and read, also when it has ended, and nothing more.
func TestCp(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		b.up(t, directory(t, cpPods), 0)
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte("text"), 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, 1234, 5678); err != nil {
			t.Fatal(err)
		}
		b.cp(t, 1, "read-only file system: the container cannot write there either", file, "web:/file")
		b.cp(t, 1, "read-only file system", dir, "web:/")
		for _, target := range []string{"/data/new", "/memory", "/dev/shm", "/etc/hosts"} {
			b.cp(t, 0, "", file, "web:"+target)
		}
		want := insideFile{UID: 1234, GID: 5678, Mode: "0640"}
		for path, got := range b.stat(t, "/data/new", "/memory/file", "/dev/shm/file") {
			if got.Error = ""; got != want { // its user cannot read it
				t.Errorf("%s: %+v", path, got)
			}
		}
		// A mount is written to where it is: nothing can replace it.
		if got := b.stat(t, "/etc/hosts")["/etc/hosts"]; got.Content != "text" || got.Mode != "0644" {
			t.Errorf("/etc/hosts: %+v", got)
		}
		for from, content := range map[string]string{"/own": "computed\n", "/data/new": "text", "/data/shared": "computed\n", "/fixed/shared": "computed\n", "/etc/hosts": "text"} {
			b.cp(t, 0, "", "-c", "first", "web:"+from, filepath.Join(dir, "back"))
			if data, err := os.ReadFile(filepath.Join(dir, "back")); err != nil || string(data) != content {
				t.Errorf("%s of the container that has ended: %q, %v", from, data, err)
			}
		}
		b.cp(t, 0, "", "-c", "first", file, "web:/data/late")
		b.cp(t, 0, "", "-c", "first", file, "web:/late")
		b.cp(t, 1, "read-only file system", "-c", "first", file, "web:/fixed/late")
		if got := b.stat(t, "/data/late")["/data/late"]; got.UID != 1234 {
			t.Errorf("/data/late: %+v", got)
		}
		b.cp(t, 0, "", "-c", "first", "web:/late", filepath.Join(dir, "late"))
		b.cp(t, 1, "a file system of the kernel cannot be copied", "web:/proc", dir)
		b.cp(t, 1, "a character device cannot be copied", "web:/dev/zero", dir)
		b.cp(t, 0, "", "web:/proc/1/cmdline", filepath.Join(dir, "cmdline"))
		if data, err := os.ReadFile(filepath.Join(dir, "cmdline")); err != nil || string(data) != "/bin/box\x00sleep\x00" {
			t.Errorf("the command line of the first process: %q, %v", data, err)
		}
		b.cp(t, 0, "proc", "web:/", filepath.Join(dir, "all")) // it says what is left out
		for name, there := range map[string]bool{"bin/box": true, "data/new": true, "memory/file": true, "proc": false, "dev/null": false} {
			if _, err := os.Lstat(filepath.Join(dir, "all", name)); (err == nil) != there {
				t.Errorf("%s in a copy of everything: %v", name, err)
			}
		}
	}
	embedded(t, test)
	daemons(t, test, daemon.Current, daemon.Debian)
}

// TestCpUsers: owners are those that the container sees, also in a user namespace, in its own layer, in volumes and in
// file systems of its own.
func TestCpUsers(t *testing.T) {
	test := func(t *testing.T, b *box) {
		t.Helper()
		if err := os.Chmod(b.dir, 0o711); err != nil { // its users are others on this machine
			t.Fatal(err)
		}
		manifest := strings.Replace(cpPods, "hostNetwork: true", "hostUsers: false", 1)
		b.up(t, directory(t, strings.Replace(manifest, "securityContext: {readOnlyRootFilesystem: true, runAsUser: 1000}", "", 1)), 0)
		dir := t.TempDir()
		for name, id := range map[string]int{"root": 0, "user": 1234, "none": 70000} {
			file := filepath.Join(dir, "d", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(name), 0o600), os.Chown(file, id, id)); err != nil {
				t.Fatal(err)
			}
		}
		for _, target := range []string{"/", "/data", "/memory", "/dev/shm", "/dev"} {
			b.cp(t, 0, "", filepath.Join(dir, "d"), "web:"+target)
			at := filepath.Join(target, "d")
			got := b.stat(t, at, at+"/root", at+"/user", at+"/none")
			for name, id := range map[string]int{"": 0, "/root": 0, "/user": 1234, "/none": 65534} {
				if f := got[at+name]; f.UID != id || f.GID != id || f.Error != "" || name != "" && f.Content != name[1:] {
					t.Errorf("%s: %+v, want the owner %d", at+name, f, id)
				}
			}
			back := filepath.Join(dir, "back"+strings.ReplaceAll(target, "/", "-"))
			b.cp(t, 0, "", "web:"+at, back)
			wantOwners(t, back, map[string]uint32{"": 0, "root": 0, "user": 1234, "none": 65534})
		}
		b.cp(t, 0, "", "-c", "first", filepath.Join(dir, "d"), "web:/data/ended")
		if f := b.stat(t, "/data/ended/user")["/data/ended/user"]; f.UID != 1234 || f.Content != "user" {
			t.Errorf("by a container that has ended: %+v", f)
		}
		b.cp(t, 0, "", "-c", "first", filepath.Join(dir, "d"), "web:/own-d")
		b.cp(t, 0, "", "-c", "first", "web:/", filepath.Join(dir, "ended"))
		wantOwners(t, filepath.Join(dir, "ended"), map[string]uint32{"": 0, "own": 0, "bin/box": 0, "data/shared": 0, "own-d/user": 1234, "data/ended/user": 1234})
	}
	roottest.Require(t)
	embedded(t, test)
	daemons(t, test, daemon.Current)
}

func wantOwners(t *testing.T, dir string, owners map[string]uint32) {
	t.Helper()
	for name, id := range owners {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil || st.Uid != id || st.Gid != id {
			t.Errorf("%s belongs to %d:%d, %v, want %d", filepath.Join(dir, name), st.Uid, st.Gid, err, id)
		}
	}
}

// TestCpThirdPartyShim: the root file system of a container with another shim is found, too.
func TestCpThirdPartyShim(t *testing.T) {
	b := newBox(t, "")
	b.up(t, directory(t, otherClass(pod("web", "Always", "do", "write /file x", "sleep"))), 0, "--runtime-handler", otherShim(t, daemon.Current))
	dir := t.TempDir()
	b.cp(t, 0, "", "web:/file", dir)
	b.cp(t, 0, "", filepath.Join(dir, "file"), "web:/back")
	if got := b.stat(t, "/back")["/back"]; got.Content != "x\n" {
		t.Errorf("%+v", got)
	}
}

// TestCpRace: a container that replaces a directory by a link to the machine's files all the time gets none of them and
// changes none.
func TestCpRace(t *testing.T) {
	b := newBox(t, "")
	secret := t.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "f"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.up(t, directory(t, pod("web", "Always", "do", "write /a/b/f mine", "swap /a/b "+secret)), 0)
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := errors.Join(os.MkdirAll(source+"/b", 0o755), os.WriteFile(source+"/b/f", []byte("new"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		to := filepath.Join(dir, fmt.Sprint(i))
		for _, args := range [][]string{{"web:/a", to}, {"web:/a/b/f", to + "f"}, {"web:/a/b/", to + "b"}, {source + "/.", "web:/a"}, {source + "/b/f", "web:/a/b/f"}} {
			if r := b.run(t, "cp", args...); r.code > 1 {
				t.Errorf("%q: exit code %d, %s", args, r.code, r.stderr)
			}
		}
		for _, name := range []string{"f", "b/f"} {
			if data, _ := os.ReadFile(to + name); string(data) == "secret" {
				t.Errorf("%s has the secret", to+name)
			}
		}
	}
	entries, err := os.ReadDir(secret)
	if data, rerr := os.ReadFile(filepath.Join(secret, "f")); len(entries) != 1 || string(data) != "secret" {
		t.Errorf("%v %q, %v, %v", entries, data, err, rerr)
	}
}

// TestCpWhileRunning: a copy needs no run to end, and goes on when the run that serves containerd is killed. One that is
// interrupted or killed leaves nothing mounted, and nothing that is not complete under its name.
func TestCpWhileRunning(t *testing.T) {
	b := newBox(t, "")
	args := b.upArgs(t, directory(t, pod("web", "Always", "do", "fill /large 1200", "write /ready x", "sleep"), pod("ends", "Never", "fill", "/large", "300")))
	args[slices.Index(args, "100ms")] = "1h"
	run := b.command(t, "run", args...)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if !eventually(func() bool { return b.run(t, "cp", "web:/ready", dir).code == 0 }) {
		t.Fatal("the container is not ready")
	}
	cmd := b.command(t, "cp", "web:/large", filepath.Join(dir, "large"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return len(temporary(t, dir)) > 0 }) {
		t.Fatal("nothing is copied")
	}
	if err := run.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = run.Wait()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "large")); err != nil || info.Size() != 1200<<20 {
		t.Errorf("%v, %v", info, err)
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		t.Logf("%d KiB of memory", usage.Maxrss)
	}
	for from, signal := range map[string]syscall.Signal{"web:/large": syscall.SIGTERM, "ends:/large": syscall.SIGKILL} {
		to := t.TempDir()
		cmd := b.command(t, "cp", from, filepath.Join(to, "large"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !eventually(func() bool { return len(temporary(t, to)) > 0 }) {
			t.Fatal("nothing is copied")
		}
		time.Sleep(50 * time.Millisecond)
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		left, err := os.ReadDir(to)
		if signal == syscall.SIGTERM && (len(left) > 0 || cmd.ProcessState.ExitCode() != 143) || err != nil {
			t.Errorf("%s: left %v, %v, exit code %d", signal, left, err, cmd.ProcessState.ExitCode())
		}
		if _, err := os.Stat(filepath.Join(to, "large")); err == nil {
			t.Errorf("%s: the file is there", signal)
		}
	}
}

// temporary returns the files that are being written in a directory.
func temporary(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, ".runonce-cp-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
