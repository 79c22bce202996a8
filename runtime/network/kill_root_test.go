package network

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/record"
)

// victimVariable makes the test binary a process that works on pods until it is killed. The
// value is its state directory.
const victimVariable = "RUNONCE_TEST_VICTIM"

// victimPathVariable is where its firewall is, empty for the machine's.
const victimPathVariable = "RUNONCE_TEST_VICTIM_PATH"

func victimOptions(dir string) Options {
	return Options{
		Path:       os.Getenv(victimPathVariable),
		Records:    record.Open(dir, dir),
		StateDir:   filepath.Join(dir, "state"),
		DataDir:    filepath.Join(dir, "data"),
		CNIConfDir: filepath.Join(dir, "net.d"),
	}
}

func victimPods() []*v1.Pod {
	pods := make([]*v1.Pod, 0, 6)
	for i := range cap(pods) {
		pods = append(pods, newPod(fmt.Sprintf("p%d", i), func(p *v1.Pod) {
			if i%2 == 0 {
				p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: int32(23000 + i)}}
			}
		}))
	}
	return pods
}

// beVictim makes and removes sandboxes forever.
func beVictim(dir string) {
	m := New(victimOptions(dir))
	for {
		var wg sync.WaitGroup
		for _, p := range victimPods() {
			wg.Go(func() {
				if _, err := holding(m).Ensure(context.Background(), p); err != nil {
					fmt.Fprintln(os.Stderr, "victim:", err)
				}
				if err := holding(m).Remove(context.Background(), p); err != nil {
					fmt.Fprintln(os.Stderr, "victim:", err)
				}
			})
		}
		wg.Wait()
		if err := m.Cleanup(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "victim:", err)
		}
	}
}

// After a process is killed at any time, while its plugins go on, the next one completes all
// sandboxes, and removes them without a trace.
func TestKill(t *testing.T) {
	for round := range 12 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			roottest.Require(t)
			dir := t.TempDir()
			if round >= 8 {
				t.Setenv(victimPathVariable, onlyNFT(t))
			}
			m := newManagerIn(t, victimOptions(dir))
			killVictim(t, dir, time.Duration(rand.IntN(600))*time.Millisecond)
			pods := victimPods()
			if round%2 == 0 {
				for _, p := range pods {
					sb := ensure(t, m, p)
					serve(t, sb, p.Name)
					wantAnswer(t, "", sb.IPs[0]+":80", p.Name)
				}
				if got := len(leases(t, m)); got != len(pods) {
					t.Errorf("%d leases, want %d", got, len(pods))
				}
			}
			for _, p := range pods {
				if err := holding(m).Remove(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
			if got := leases(t, m); len(got) != 0 {
				t.Errorf("leases %q, want none", got)
			}
		})
	}
}

func killVictim(t *testing.T, dir string, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^$")
	cmd.Env = append(os.Environ(), victimVariable+"="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}
