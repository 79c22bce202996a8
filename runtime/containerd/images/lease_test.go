package images

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/process"
)

func TestHasDied(t *testing.T) {
	t.Parallel()
	self, err := LeaseHolder()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(self)
	if len(f) != 4 {
		t.Fatalf("holder %q", self)
	}
	child := exec.CommandContext(t.Context(), "cat")
	hold, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	born, err := process.StartTime(child.Process.Pid)
	if err := errors.Join(err, hold.Close(), child.Wait()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, holder string
		want         bool
	}{
		{"this process", self, false},
		{"a process that has ended", fmt.Sprintf("%s %s %d %s", f[0], f[1], child.Process.Pid, born), true},
		{"its PID has come again", fmt.Sprintf("%s %s %s %s0", f[0], f[1], f[2], f[3]), true},
		{"another boot", strings.Join([]string{"0-0", f[1], f[2], f[3]}, " "), true},
		{"another PID namespace", strings.Join([]string{f[0], "pid:[1]", "1", "1"}, " "), false},
		{"unknown words", "x", false},
		{"no number", strings.Join([]string{f[0], f[1], "x", f[3]}, " "), false},
	} {
		if got := hasDied(tt.holder); got != tt.want {
			t.Errorf("%s: hasDied(%q) = %v", tt.name, tt.holder, got)
		}
	}
}
