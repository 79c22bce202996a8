package cmd_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testimages"
)

// livePods returns "name restarts" for each running pod.
func (m machine) livePods(t *testing.T) (names []string) {
	t.Helper()
	var list struct {
		Pods []struct {
			Name       string
			Containers []struct {
				State    string
				Restarts int
			}
		}
	}
	if err := json.Unmarshal([]byte(m.once(t, "ps", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Pods {
		if c := p.Containers[0]; c.State == "Running" {
			names = append(names, fmt.Sprint(p.Name, " ", c.Restarts))
		}
	}
	return names
}

// killMarked kills the process of a container that has the argument, as soon as it runs.
func killMarked(t *testing.T, argument string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), "\x00"+argument+"\x00") {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no process with %q", argument)
}

// TestWatchRealPods: in a process of its own, beside other commands of the same root, watch brings
// back what was killed, applies changes, and ends without its pods. No process inherits the socket of
// the service manager.
func TestWatchRealPods(t *testing.T) {
	roottest.Require(t)
	messages := listen(t)
	m := newMachine(t, boxImages(t))
	dir := t.TempDir()
	var sick atomic.Bool // for one probe
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if sick.CompareAndSwap(true, false) {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf("3h%dns", os.Getpid())
	write := func(name, args string) {
		t.Helper()
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  hostNetwork: true\n  terminationGracePeriodSeconds: 2\n" +
			"  containers:\n  - name: main\n    image: localhost/box:1\n    args: " + args + "\n"
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "[sleep, "+mark+"]")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Under nohup, since SIGHUP has to work there as well.
	p := &process{Cmd: exec.CommandContext(t.Context(), "sh", slices.Concat([]string{"-c", `trap "" HUP; exec "$@"`, "sh", self, "watch", "--settle", "100ms", "--capacity", "cpu=4,memory=1100Mi,pods=20", dir}, m.flags)...)}
	p.Env = append(os.Environ(), asProgram+"=1")
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	await := func(want ...string) {
		t.Helper()
		var got []string
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if got = m.livePods(t); slices.Equal(got, want) {
				return
			}
		}
		_ = p.Process.Kill()
		_ = p.Wait()
		t.Fatalf("running: %v, want %v\n%s", got, want, &p.stderr)
	}
	await("a 0")
	killMarked(t, mark)
	await("a 1")
	write("b", "[sleep]\n    livenessProbe: {httpGet: {host: 127.0.0.1, port: "+port+"}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 60}")
	await("a 1", "b 0")
	write("a", "[sleep, 2h]")
	await("a 0", "b 0")
	sick.Store(true)
	await("a 0", "b 1")
	// A run of other manifests beside it does not touch its pods.
	m.once(t, "run", "--settle", "0s", "--capacity", "cpu=4,memory=1100Mi,pods=20", sizedPod(t, "c", 10, sleeps))
	await("a 0", "b 1", "c 0")
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	await("a 0", "c 0")
	// New manifests may come with their images.
	images := filepath.Join(m.dir, "root", "images")
	if err := os.Mkdir(images, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := testimages.Write(t.Context(), images, "pause"); err != nil {
		t.Fatal(err)
	}
	paused := filepath.Join(dir, "d.yaml")
	if err := os.WriteFile(paused, []byte("{apiVersion: v1, kind: Pod, metadata: {name: d}, spec: {containers: [{name: main, image: localhost/pause:1}]}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	await("a 0", "c 0", "d 0")
	if err := os.Remove(paused); err != nil {
		t.Fatal(err)
	}
	await("a 0", "c 0")
	// What down has stopped comes back when the manifests are read again.
	m.once(t, "down", "a")
	await("c 0")
	const aRuns = "default/a: Running\n"
	running := strings.Count(p.stderr.String(), aRuns)
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	await("a 0", "c 0")
	withoutSocket(t)
	// A container that runs counts a little later, and the manager is told of it later still.
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if strings.Count(p.stderr.String(), aRuns) > running && lastStatus(messages()) == "1 of 1 pod running" {
			break
		}
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _ = p.Wait(); p.ProcessState.ExitCode() != 0 {
		t.Errorf("exit code %d\n%s", p.ProcessState.ExitCode(), &p.stderr)
	}
	await("a 0", "c 0")
	got := messages()
	if text := strings.Join(got, "\n"); strings.Count(text, "READY=1") != 1 || !strings.Contains(text, "STOPPING=1") || lastStatus(got) != "1 of 1 pod running" {
		t.Errorf("notified:\n%s", text)
	}
}

// withoutSocket fails the test if a process but the test's own could notify the service manager.
func withoutSocket(t *testing.T) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	socket := "NOTIFY_SOCKET=" + os.Getenv("NOTIFY_SOCKET")
	for _, path := range all {
		environ, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		command, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err == nil && strings.Contains(string(environ), socket) && !strings.Contains(string(command), "\x00watch\x00") {
			t.Errorf("%q has the socket", command)
		}
	}
}
