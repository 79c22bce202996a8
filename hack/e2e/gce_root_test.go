package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/runonce/runonce/manifests"
)

// instance is the metadata server of an instance of Compute Engine, at its usual name.
type instance struct {
	mu         sync.Mutex
	attributes map[string]string
	archive    string
	refused    int // requests for attributes that it does not have
}

func (i *instance) hasRefused() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.refused > 0
}

func (i *instance) set(name, value string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.attributes[name] = value
}

func (i *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	value, ok := i.attributes[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/instance/attributes/")]
	switch {
	case r.URL.Path == "/archive":
		http.ServeFile(w, r, i.archive)
	case r.Header.Get("Metadata-Flavor") != "Google":
		http.Error(w, "no header", http.StatusForbidden)
	case !ok:
		i.refused++
		http.NotFound(w, r)
	default:
		_, _ = w.Write([]byte(value))
	}
}

// startInstance starts the metadata server of an instance that installs the box at each boot.
func (b *box) startInstance(t *testing.T) *instance {
	t.Helper()
	i := &instance{archive: b.archive(t)}
	sum, err := exec.CommandContext(t.Context(), "sha256sum", i.archive).Output()
	if err != nil {
		t.Fatal(err)
	}
	digest, _, _ := strings.Cut(string(sum), " ")
	const host = "metadata.google.internal"
	i.attributes = map[string]string{"runonce-sha256": digest, "runonce-url": "http://" + host + "/archive"}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/etc/hosts", fmt.Append(hosts, "\n127.0.0.1 "+host+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: i}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := os.WriteFile("/etc/hosts", hosts, 0o600); err != nil {
			t.Error(err)
		}
	})
	return i
}

// archive writes what the start-up script uses of a release, with a program that has the flags of the box.
func (b *box) archive(t *testing.T) string {
	t.Helper()
	path, archives := built(t)
	unit, err := os.ReadFile("../../packaging/gce/runonce-gce.service")
	if err != nil {
		t.Fatal(err)
	}
	// The machine has not started what ordinary services need.
	adapt := strings.NewReplacer("[Unit]\n", "[Unit]\nDefaultDependencies=no\n", "network-online.target google-startup-scripts.service ", "", "Wants=network-online.target\n", "")
	files := map[string]string{
		"bin/runonce":                            fmt.Sprintf("#!/bin/sh\ncommand=$1\nshift\nexec %s $command %s --images-dir %s --pull missing --settle 0 \"$@\"\n", path, strings.Join(b.flags(), " "), archives),
		"lib/systemd/system/runonce-gce.service": adapt.Replace(string(unit)),
	}
	for _, name := range []string{"gce-token", "providers.yaml"} {
		text, err := os.ReadFile("../../packaging/gce/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files["libexec/runonce/gce/"+name] = string(text)
	}
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "runonce.tar.gz")
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-czf", archive, "bin", "lib", "libexec").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return archive
}

// TestComputeEngine: the start-up script installs the release and starts the unit, which runs the container of the
// instance's declaration if it has one, follows the declaration, and stops the container.
func TestComputeEngine(t *testing.T) {
	inSystemd(t)
	b := newBox(t, "")
	i := b.startInstance(t)
	const unit = "runonce-gce.service"
	boot := func() {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "sh", "../../packaging/gce/startup-script.sh").CombinedOutput(); err != nil {
			t.Fatalf("the start-up script: %v\n%s", err, out)
		}
	}
	declare := func(command string) {
		i.set(manifests.FormatGCE, fmt.Sprintf("spec: {containers: [{name: web, image: 'localhost/box:1', args: [do, %s, sleep]}], restartPolicy: Always}", command))
	}
	logged := func(text string) {
		t.Helper()
		if !eventually(func() bool { return strings.Contains(b.run(t, "logs", "web").stdout, text) }) {
			t.Errorf("the container has not written %q:\n%s", text, b.run(t, "ps").stdout)
		}
	}
	boot()
	// Systemd forgets at once why it has not started a unit.
	if !eventually(i.hasRefused) {
		t.Errorf("nothing asks for the declaration:\n%s", systemctl(t, "show", unit))
	}
	awaitUnit(t, unit, "inactive/dead", "")

	declare("echo one")
	boot()
	awaitUnit(t, unit, "active/running", "1 of 1 pod running")
	logged("one")
	if got := properties(t, unit, "UnitFileState", "FragmentPath"); got[0] != "enabled" || got[1] != "/etc/systemd/system/"+unit {
		t.Errorf("the unit is installed as %q", got)
	}
	declare("echo two")
	systemctl(t, "reload", unit)
	logged("two")
	awaitUnit(t, unit, "active/running", "1 of 1 pod running")

	systemctl(t, "stop", unit)
	awaitUnit(t, unit, "inactive/dead", "")
	if r := b.run(t, "ps", "-o", "json"); r.code != 0 || len(r.report.Pods) != 0 {
		t.Errorf("after stop: %+v", r)
	}
}
