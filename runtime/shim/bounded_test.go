package shim

import (
	"bufio"
	"context"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	runc "github.com/containerd/go-runc"

	"github.com/runonce/runonce/internal/procstat"
)

func TestLimitOf(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]time.Duration{
		"runc --root /x --log /y/log.json create --bundle /y a": startLimit,
		"runc --root /x kill --all a 9":                         endLimit,
		"runc --root /x delete a":                               endLimit,
		"runc --root /x exec --detach a":                        0,
		"runc --root /x ps a":                                   0,
		"runc":                                                  0,
	} {
		if got := limitOf(strings.Fields(line)); got != want {
			t.Errorf("%s: %s", line, got)
		}
	}
}

// TestBounder: a command ends with its context, and so do its children.
func TestBounder(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := &bounder{ProcessMonitor: runc.Monitor}
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 1000 & echo $!; wait", "kill")
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	exits, err := b.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if code, err := b.Wait(cmd, exits); code == 0 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
	for deadline := time.Now().Add(time.Minute); procstat.Alive(child); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its child still runs")
		}
	}
	for range b.timers.Range {
		t.Error("a timer is left")
	}
}
