package podstate

import (
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/engine"
)

func TestStopSignal(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		want syscall.Signal
		says v1.Signal
	}{
		{"", syscall.SIGTERM, "SIGTERM"},
		{"SIGQUIT", syscall.SIGQUIT, "SIGQUIT"},
		{"usr1", syscall.SIGUSR1, "SIGUSR1"},
		{"9", syscall.SIGKILL, "SIGKILL"},
		{"65", syscall.SIGTERM, "SIGTERM"},
		{"-1", syscall.SIGTERM, "SIGTERM"},
		{"nonsense", syscall.SIGTERM, "SIGTERM"},
		{"SIGCLD", syscall.SIGCHLD, "SIGCHLD"},
		{"SIGRTMIN", 34, "SIGRTMIN"},
		{"SIGRTMIN+3", 37, "SIGRTMIN+3"},
		{"RTMIN+15", 49, "SIGRTMIN+15"},
		{"SIGRTMAX-14", 50, "SIGRTMAX-14"},
		{"SIGRTMAX", 64, "SIGRTMAX"},
		{"SIGRTMIN-1", syscall.SIGTERM, "SIGTERM"},
		{"SIGRTMAX-99", syscall.SIGTERM, "SIGTERM"},
		{"SIGRTMIN+x", syscall.SIGTERM, "SIGTERM"},
	}
	for _, tt := range tests {
		c := engine.Container{Labels: map[string]string{engine.LabelStopSignal: tt.name}}
		if got := StopSignal(c); got != tt.want {
			t.Errorf("stop signal %q = %d, want %d", tt.name, got, tt.want)
		}
		if got := effectiveStopSignal(c); *got != tt.says {
			t.Errorf("stop signal %q is reported as %q, want %q", tt.name, *got, tt.says)
		}
	}
}

// TestStopSignals: every signal that Kubernetes takes is one that can be sent.
func TestStopSignals(t *testing.T) {
	t.Parallel()
	for _, name := range []v1.Signal{
		v1.SIGABRT, v1.SIGALRM, v1.SIGBUS, v1.SIGCHLD, v1.SIGCLD, v1.SIGCONT, v1.SIGFPE, v1.SIGHUP, v1.SIGILL, v1.SIGINT,
		v1.SIGIO, v1.SIGIOT, v1.SIGKILL, v1.SIGPIPE, v1.SIGPOLL, v1.SIGPROF, v1.SIGPWR, v1.SIGQUIT, v1.SIGSEGV, v1.SIGSTKFLT,
		v1.SIGSTOP, v1.SIGSYS, v1.SIGTERM, v1.SIGTRAP, v1.SIGTSTP, v1.SIGTTIN, v1.SIGTTOU, v1.SIGURG, v1.SIGUSR1, v1.SIGUSR2,
		v1.SIGVTALRM, v1.SIGWINCH, v1.SIGXCPU, v1.SIGXFSZ, v1.SIGRTMINPLUS1, v1.SIGRTMAXMINUS1,
	} {
		c := engine.Container{Labels: map[string]string{engine.LabelStopSignal: string(name)}}
		if StopSignal(c) == syscall.SIGTERM && name != v1.SIGTERM {
			t.Errorf("%s is unknown", name)
		}
	}
}

func TestStopSignalOfContainerOverImage(t *testing.T) {
	t.Parallel()
	own := v1.SIGUSR1
	c := &v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: &own}}
	if got := StopSignalName(c, engine.Image{StopSignal: "SIGQUIT"}); got != "SIGUSR1" {
		t.Errorf("with a signal of its own: %q", got)
	}
	c.Lifecycle.StopSignal = nil
	if got := StopSignalName(c, engine.Image{StopSignal: "SIGQUIT"}); got != "SIGQUIT" {
		t.Errorf("with one of the image: %q", got)
	}
}
