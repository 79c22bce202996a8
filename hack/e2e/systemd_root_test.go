package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/runonce/runonce/hack/vm/job"
)

const unitDir = "/run/systemd/system"

// install installs the units of packaging/systemd with the program, the flags and the directories
// of the box.
func (b *box) install(t *testing.T) {
	t.Helper()
	path, archives := built(t)
	flags := strings.Join(b.flags(), " ")
	adapt := strings.NewReplacer(
		"/usr/local/bin/runonce down", path+" down "+flags,
		"/usr/local/bin/runonce run", path+" run "+flags+" --images-dir "+archives+" --settle 10s",
		"/usr/local/bin/runonce watch", path+" watch "+flags+" --images-dir "+archives+" --container-logs journal --log-format journal --log-level info",
		"/etc/runonce/", b.dir+"/",
		// The machine has not started what ordinary services need.
		"[Unit]\n", "[Unit]\nDefaultDependencies=no\n", "After=network-online.target runonce-shutdown", "After=runonce-shutdown", "After=network-online.target containerd.service\n", "", "Wants=network-online.target\n", "",
	)
	units, err := filepath.Glob("../../packaging/systemd/*")
	if err != nil || len(units) == 0 {
		t.Fatalf("%d units, %v", len(units), err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		installed := filepath.Join(unitDir, filepath.Base(unit))
		if err := os.WriteFile(installed, []byte(adapt.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(installed) })
	}
	for _, dir := range []string{"pods", "pods.d/web"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	installed, err := filepath.Glob(filepath.Join(unitDir, "runonce*"))
	if err != nil {
		t.Fatal(err)
	}
	verify := append([]string{"--man=no", "verify"}, installed...)
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", verify...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	systemctl(t, "daemon-reload")
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// properties returns the values of properties of the unit.
func properties(t *testing.T, unit string, names ...string) []string {
	t.Helper()
	values := make([]string, len(names))
	for line := range strings.Lines(systemctl(t, "show", "-p", strings.Join(names, ","), unit)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if i := slices.Index(names, name); i >= 0 {
			values[i] = value
		}
	}
	return values
}

// awaitUnit waits until the unit has the states, as in "active/exited", and the text of its status
// begins with this.
func awaitUnit(t *testing.T, unit, states, status string) {
	t.Helper()
	ok := eventually(func() bool {
		is := properties(t, unit, "ActiveState", "SubState", "StatusText")
		return is[0]+"/"+is[1] == states && strings.HasPrefix(is[2], status)
	})
	if !ok {
		t.Fatalf("%s did not become %q, %q:\n%s", unit, states, status, systemctl(t, "show", unit))
	}
}

func (b *box) write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, path), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inSystemd skips the test outside the machines with systemd.
func inSystemd(t *testing.T) {
	t.Helper()
	if name := os.Getenv(job.Machine); name != job.SystemdV2 && name != job.SystemdV1 {
		t.Skip("runs in the machines of make test-vm that have systemd")
	}
}

// TestUnits: the units say how the pods are while they start and afterwards, apply changes, stop
// what they have started, and are not started again for what no retry can help.
func TestUnits(t *testing.T) {
	inSystemd(t)
	b := newBox(t, "")
	b.install(t)
	b.write(t, "pods/a.yaml", pod("a", "Always", "sleep"))
	systemctl(t, "start", "--no-block", "runonce.service")
	awaitUnit(t, "runonce.service", "activating/start", "0 of 1 pod running; default/a: container")
	awaitUnit(t, "runonce.service", "active/exited", "1 of 1 pod running")
	if out := systemctl(t, "status", "runonce.service"); !strings.Contains(out, `Status: "1 of 1 pod running"`) {
		t.Errorf("systemctl status:\n%s", out)
	}
	nobodyNotifies(t)

	systemctl(t, "start", "runonce.path")
	b.write(t, "pods/b.yaml", pod("b", "Always", "sleep"))
	awaitUnit(t, "runonce.service", "active/exited", "2 of 2 pods running")
	systemctl(t, "stop", "runonce.path", "runonce.service")
	if r := b.run(t, "ps", "-o", "json"); r.code != 0 || len(r.report.Pods) != 0 {
		t.Errorf("after stop: %+v", r)
	}

	b.write(t, "pods.d/web/w.yaml", pod("w", "Always", "do", "echo hello", "sleep"))
	systemctl(t, "start", "runonce@web.service")
	awaitUnit(t, "runonce@web.service", "active/exited", "1 of 1 pod running")
	systemctl(t, "stop", "runonce@web.service")

	// The same pods, kept running, with everything in the journal: what is invalid changes nothing.
	systemctl(t, "start", "systemd-journald.service")
	systemctl(t, "start", "runonce-watch@web.service")
	awaitUnit(t, "runonce-watch@web.service", "active/running", "1 of 1 pod running")
	b.write(t, "pods.d/web/x.yaml", pod("x", "Always", "sleep"))
	awaitUnit(t, "runonce-watch@web.service", "active/running", "2 of 2 pods running")
	nobodyNotifies(t)
	b.write(t, "pods.d/web/x.yaml", "kind: Pod\n")
	systemctl(t, "reload", "runonce-watch@web.service")
	if r := b.run(t, "ps", "-o", "json"); len(r.report.Pods) != 2 {
		t.Errorf("with an invalid manifest: %+v", r)
	}
	inJournal(t, "hello", "POD_NAME=w", "CONTAINER_NAME=main", "SYSLOG_IDENTIFIER=w/main")
	inJournal(t, "default/x: Running", "POD_NAME=x", "SYSLOG_IDENTIFIER=runonce")
	// A killed process is started again, and keeps the pods.
	if err := os.Remove(filepath.Join(b.dir, "pods.d/web/x.yaml")); err != nil {
		t.Fatal(err)
	}
	awaitUnit(t, "runonce-watch@web.service", "active/running", "1 of 1 pod running")
	systemctl(t, "kill", "--kill-who=main", "-s", "KILL", "runonce-watch@web.service")
	if !eventually(func() bool { return properties(t, "runonce-watch@web.service", "NRestarts")[0] == "1" }) {
		t.Error("a killed watch is not started again")
	}
	awaitUnit(t, "runonce-watch@web.service", "active/running", "1 of 1 pod running")
	systemctl(t, "stop", "runonce-watch@web.service")
	awaitUnit(t, "runonce-watch@web.service", "inactive/dead", "")
	if r := b.run(t, "ps", "-o", "json"); r.code != 0 || len(r.report.Pods) != 0 {
		t.Errorf("after stop: %+v", r)
	}

	b.write(t, "pods/b.yaml", "kind: Pod\n")
	systemctl(t, "start", "--no-block", "runonce.service")
	awaitUnit(t, "runonce.service", "failed/failed", "")
	if got := properties(t, "runonce.service", "ExecMainStatus", "NRestarts"); got[0] != "2" || got[1] != "0" {
		t.Errorf("exit code and restarts after an invalid manifest: %q", got)
	}
}

// TestShutdownUnit: what systemd stops in a shutdown stops the ordinary pods, then the critical ones, and keeps them.
func TestShutdownUnit(t *testing.T) {
	inSystemd(t)
	b := newBox(t, "")
	b.install(t)
	systemctl(t, "start", "runonce-shutdown.service")
	b.stopsCriticalLast(t, func() { systemctl(t, "stop", "runonce-shutdown.service") })
	if after := properties(t, "runonce.service", "After")[0]; !strings.Contains(after, "runonce-shutdown.service") {
		t.Errorf("runonce.service is After=%s", after)
	}
}

// inJournal waits for an entry of the journal with the text and the fields.
func inJournal(t *testing.T, text string, fields ...string) {
	t.Helper()
	var out []byte
	var err error
	found := eventually(func() bool {
		out, err = exec.CommandContext(t.Context(), "journalctl", append([]string{"-o", "cat"}, fields...)...).CombinedOutput()
		return err == nil && strings.Contains(string(out), text+"\n")
	})
	if !found {
		t.Errorf("journalctl %v: no %q, %v\n%s", fields, text, err, out)
	}
}

// nobodyNotifies fails the test if a process that is not a service could notify the service manager.
func nobodyNotifies(t *testing.T) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	shims := 0
	for _, path := range all {
		environ, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		command, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		// These were started with the socket.
		service := bytes.Contains(command, []byte("\x00watch\x00")) || bytes.Contains(command, []byte("systemd-journald"))
		if err == nil && bytes.Contains(environ, []byte("NOTIFY_SOCKET=")) && !service {
			t.Errorf("%s has the socket of the service manager", command)
		}
		if bytes.Contains(command, []byte("shim")) {
			shims++
		}
	}
	if shims == 0 {
		t.Error("no shim was found")
	}
}
