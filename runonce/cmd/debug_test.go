package cmd_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/cmd"
)

// debugs runs "debug" with a pod "web" on a machine in memory.
func debugs(t *testing.T, m *memory, world cmd.IO, args string) invocation {
	t.Helper()
	own := []string{"debug", "--root", m.root, "--state", filepath.Join(m.root, "state"), "--log-dir", filepath.Join(m.root, "log")}
	world.Open = m.open
	return invokeWith(t, world, append(own, strings.Fields(args)...)...)
}

func debugged(t *testing.T) *memory {
	t.Helper()
	m := newMemory(t)
	if got := invoke(t, m, "run", "--settle", "0", "--node", nodeFile(), manifest(t, "web", "Always", "[sleep]")); got.code != 0 {
		t.Fatal(got)
	}
	return m
}

// TestDebug: what of the command line is for the container, and the exit codes.
func TestDebug(t *testing.T) {
	t.Parallel()
	m := debugged(t)
	for _, tt := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{args: "web --image localhost/box:1 -c one", stdout: "one\n"},
		{args: "-n default pod/web --image localhost/box:1 -c two -- box echo -c x", stdout: "two\n"},
		{args: "-i web --image localhost/box:1 -c three -- box listen", stdout: "listening\nin "},
		{args: "-it web --image localhost/box:1 -c four", stdout: "in ", stderr: "Unable to use a TTY: input is not a terminal\n"},
		{args: "", code: 125, stderr: "runonce: debug needs a POD\n"},
		{args: "web", code: 125, stderr: "runonce: debug needs an image: --image IMAGE\n"},
		{args: "web --image x sh", code: 125, stderr: "runonce: put \"--\" before the command: runonce debug web -- sh\n"},
		{args: "web --image x --env X", code: 125, stderr: "runonce: --env \"X\": must be KEY=VALUE\n"},
		{args: "web --image x --profile all", code: 125, stderr: "runonce: --profile \"all\": must be one of general, baseline, restricted, netadmin, sysadmin\n"},
		{args: "nobody --image x", code: 125, stderr: "runonce: no pod \"nobody\" on this machine; see \"runonce ps\"\n"},
		{
			args: "web --image x -c one", code: 125,
			stderr: "runonce: Pod \"web\" is invalid: spec.ephemeralContainers[4].name: Duplicate value: \"one\"\n",
		},
		{
			args: "web --image localhost/none:1 -c none", code: 125,
			stderr: "runonce: container \"none\": ErrImagePull: pulling \"localhost/none:1\": no such image in the registry\n",
		},
	} {
		got := debugs(t, m, cmd.IO{Stdin: strings.NewReader("in ")}, tt.args)
		if got.code != tt.code || got.stdout != tt.stdout || got.stderr != tt.stderr {
			t.Errorf("%s: %d %q %q, want %d %q %q", tt.args, got.code, got.stdout, got.stderr, tt.code, tt.stdout, tt.stderr)
		}
	}
}

// TestDebugContainer: the container is as that of kubectl, with the API server's defaults.
func TestDebugContainer(t *testing.T) {
	t.Parallel()
	m := debugged(t)
	for _, args := range []string{
		"web --image localhost/box:1 -c one --target main --env B=1 --env A=x=y",
		"web --image localhost/box:1 -c two --profile sysadmin --image-pull-policy Never -i -- box exit 0",
		"web --image localhost/box:1 -c three --profile baseline -t -- box exit 0",
	} {
		debugs(t, m, cmd.IO{Stdin: strings.NewReader("")}, args)
	}
	add := func(c v1.EphemeralContainer) v1.EphemeralContainer {
		c.Image, c.TerminationMessagePath, c.TerminationMessagePolicy = "localhost/box:1", "/dev/termination-log", "File"
		if c.ImagePullPolicy == "" {
			c.ImagePullPolicy = v1.PullIfNotPresent
		}
		return c
	}
	command := []string{"box", "exit", "0"}
	want := []v1.EphemeralContainer{
		add(v1.EphemeralContainer{TargetContainerName: "main", EphemeralContainerCommon: v1.EphemeralContainerCommon{
			Name: "one", Env: []v1.EnvVar{{Name: "B", Value: "1"}, {Name: "A", Value: "x=y"}},
			SecurityContext: &v1.SecurityContext{Capabilities: &v1.Capabilities{Add: []v1.Capability{"SYS_PTRACE"}}},
		}}),
		add(v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
			Name: "two", Command: command, Stdin: true, StdinOnce: true, ImagePullPolicy: v1.PullNever, SecurityContext: &v1.SecurityContext{Privileged: new(true)},
		}}),
		add(v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "three", Command: command, TTY: true}}),
	}
	if diff := cmp.Diff(want, recorded(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// recorded returns the ephemeral containers in the record of the only pod.
func recorded(t *testing.T, m *memory) []v1.EphemeralContainer {
	t.Helper()
	var record struct{ Pod v1.Pod }
	files, err := filepath.Glob(filepath.Join(m.root, "pods", "*", "pod.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("records %q, %v", files, err)
	}
	if err := json.Unmarshal([]byte(read(t, files[0])), &record); err != nil {
		t.Fatal(err)
	}
	return record.Pod.Spec.EphemeralContainers
}

// TestDebugTerminal: the terminal is restored, whatever becomes of the container.
func TestDebugTerminal(t *testing.T) {
	t.Parallel()
	m := debugged(t)
	for args, want := range map[string][]string{
		"-it web --image localhost/box:1 -- box sleep": {"raw", "restored"},
		"-t web --image localhost/box:1 -- box exit 0": nil,
		"-it nobody --image localhost/box:1 -- box":    nil,
	} {
		r := &recorder{}
		world := cmd.IO{Stdin: iotest.ErrReader(errors.New("broken")), Terminal: r}
		if debugs(t, m, world, args); !slices.Equal(r.calls, want) {
			t.Errorf("%s: %q, want %q", args, r.calls, want)
		}
	}
}
