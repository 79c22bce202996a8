package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// gadgetSpecs writes a specification of two devices. Each has a node, which is a null
// device, a variable, a directory with a file, and a hook that notes that it was run.
func gadgetSpecs(t *testing.T) (specs, dir string) {
	t.Helper()
	specs, dir = t.TempDir(), t.TempDir()
	var devices []string
	for _, name := range []string{"a", "b"} {
		node, mount := filepath.Join(dir, "node-"+name), filepath.Join(dir, "mount-"+name)
		if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(mount, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mount, "name"), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		devices = append(devices, fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["GADGET=%s"],
"deviceNodes":[{"path":"/dev/gadget-%s","hostPath":%q,"permissions":"rw"}],
"mounts":[{"hostPath":%q,"containerPath":"/gadget","options":["ro","bind"]}],
"hooks":[{"hookName":"createRuntime","path":"/bin/sh","args":["sh","-c","echo ran >> %s"]}]}}`,
			name, name, name, node, mount, filepath.Join(dir, "hook-"+name)))
	}
	text := `{"cdiVersion":"0.6.0","kind":"example.com/gadget","devices":[` + strings.Join(devices, ",") + `]}`
	if err := os.WriteFile(filepath.Join(specs, "gadget.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return specs, dir
}

// gadgetPod asks for n gadgets, opens one, and tells what it sees of them.
func gadgetPod(t *testing.T, name string, n int, opens string) string {
	t.Helper()
	return sizedPod(t, name, 1, fmt.Sprintf(`  containers:
  - name: main
    image: localhost/box:1
    args: [do, "cat /dev/%s", "facts -stat /gadget/name,/dev/gadget-a,/dev/gadget-b -hold"]
    resources: {limits: {example.com/gadget: %d}}
`, opens, n))
}

// gadgetsOf returns what the pod sees: the variable, the nodes that it can write to, and
// the file in the directory.
func (m machine) gadgetsOf(t *testing.T, pod string) map[string]string {
	t.Helper()
	var seen struct {
		Env   map[string]string `json:"env"`
		Files map[string]struct {
			Type, Content string
			Writable      bool
		} `json:"files"`
	}
	out := awaitObject(func() (string, bool) { return m.once(t, "logs", pod), !t.Failed() })
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := map[string]string{"env": seen.Env["GADGET"], "file": seen.Files["/gadget/name"].Content}
	if seen.Files["/gadget/name"].Writable {
		got["file"] += " writable"
	}
	for _, name := range []string{"a", "b"} {
		if f := seen.Files["/dev/gadget-"+name]; f.Type != "" {
			got["node"] += fmt.Sprintf("%s %s %t", name, f.Type, f.Writable)
		}
	}
	return got
}

func gadget(name string) map[string]string {
	return map[string]string{"env": name, "file": name, "node": name + " char true"}
}

// TestDevices: pods get the devices that they ask for, each its own, and who comes later
// gets what is left.
func TestDevices(t *testing.T) {
	onEngines(t, func(t *testing.T, m machine) {
		specs, dir := gadgetSpecs(t)
		run := func(manifests ...string) []string {
			t.Helper()
			_, got := m.start(t, append(manifests, "--cdi-spec-dir", specs)...).end(t)
			return got
		}
		one, two, three := gadgetPod(t, "one", 1, "gadget-a"), gadgetPod(t, "two", 1, "gadget-b"), gadgetPod(t, "three", 1, "gadget-a")
		if diff := cmp.Diff([]string{"one Running", "none Running"}, run(one, gadgetPod(t, "none", 0, "null"))); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"two Running", "three Rejected OutOfexample.com/gadget"}, run(two, three)); diff != "" {
			t.Errorf("a second run (-want +got):\n%s", diff)
		}
		for pod, want := range map[string]map[string]string{"one": gadget("a"), "two": gadget("b"), "none": {"env": "", "file": ""}} {
			if diff := cmp.Diff(want, m.gadgetsOf(t, pod)); diff != "" {
				t.Errorf("what pod %s sees (-want +got):\n%s", pod, diff)
			}
		}
		for _, name := range []string{"a", "b"} {
			if text, err := os.ReadFile(filepath.Join(dir, "hook-"+name)); err != nil || string(text) != "ran\n" {
				t.Errorf("hook of %s: %q, %v", name, text, err)
			}
		}
		m.once(t, "down", one)
		if diff := cmp.Diff([]string{"three Running"}, run(three)); diff != "" {
			t.Errorf("once a device is free (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(gadget("a"), m.gadgetsOf(t, "three")); diff != "" {
			t.Errorf("what pod three sees (-want +got):\n%s", diff)
		}
	})
}
