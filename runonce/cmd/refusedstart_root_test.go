package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// TestRefusedStart: what the OCI runtime refuses to start ends at once, and the message names the field.
func TestRefusedStart(t *testing.T) {
	roottest.Require(t)
	testRefusedStart(t, "runc")
}

func TestRefusedStartOnCrun(t *testing.T) {
	roottest.WithCrun(t, func(t *testing.T) { testRefusedStart(t, "crun") })
}

func testRefusedStart(t *testing.T, runtime string) {
	t.Helper()
	links := t.TempDir()
	if err := os.Symlink("/nowhere", filepath.Join(links, "dangling")); err != nil {
		t.Fatal(err)
	}
	pod := func(policy, fields, container string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: 2
  hostNetwork: true
  %s
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, %s}
`, policy, fields, boxRef, container)
	}
	m := newMachine(t, boxImages(t))
	for _, tt := range []struct {
		name, pod string
		want      []string
	}{
		{
			"working directory", pod("Always", "volumes: [{name: v, hostPath: {path: "+links+"}}]", "workingDir: /v/dangling, volumeMounts: [{name: v, mountPath: /v}], args: [sleep]"),
			[]string{`working directory "/v/dangling" (workingDir, or that of the image): `},
		},
		{
			"memory limit, never restarted", pod("Never", "", "resources: {limits: {memory: 64Ki}}, args: [sleep]"),
			[]string{"StartError", "the memory limit of 64Ki (resources.limits.memory) is too low for it to start: raise it: "},
		},
		{
			"memory limit, restarted", pod("OnFailure", "", "resources: {limits: {memory: 64Ki}}, args: [sleep]"),
			[]string{"CrashLoopBackOff", "the memory limit of 64Ki (resources.limits.memory) is too low for it to start: raise it: ", "; gave up after 1 restart"},
		},
		{
			"full volume", pod("OnFailure", "volumes: [{name: cache, emptyDir: {medium: Memory}}]",
				`resources: {limits: {memory: 32Mi}}, volumeMounts: [{name: cache, mountPath: /v}], args: [do, "fill /v/a 64", "alloc 64"]`),
			[]string{"CrashLoopBackOff", `the emptyDir volume "cache" (medium Memory) holds `, " of the memory limit of 32Mi (resources.limits.memory): raise the limit, or give the volume a lower sizeLimit", "; gave up after 1 restart"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := m.fails(t, 1, "run", "--oci-runtime", runtime, "--until", "completed", "--max-restarts", "1", "--max-retries", "0", podDir(t, tt.pod))
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			m.once(t, "down", "--all")
		})
	}
}
