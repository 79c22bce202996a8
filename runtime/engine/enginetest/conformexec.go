package enginetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/engine"
)

func conformExec(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "sleep")
	got, err := s.Engine.Exec(t.Context(), c.ID, []string{"/bin/box", "exit", "7", "out"})
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	if got.ExitCode != 7 || strings.TrimSpace(string(got.Output)) != "out" {
		t.Errorf("exit code %d, output %q", got.ExitCode, got.Output)
	}
}

func conformExecStreams(t *testing.T, s Subject) {
	c := start(t, s, "pod1", "web", "sleep")
	var out, errs bytes.Buffer
	code, err := s.Engine.ExecStreams(t.Context(), c.ID, engine.Command{Args: []string{"/bin/box", "exit", "7", "out"}}, engine.Streams{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("ExecStreams: %v", err)
	}
	if code != 7 || strings.TrimSpace(out.String()) != "out" || errs.Len() > 0 {
		t.Errorf("exit code %d, output %q, errors %q", code, &out, &errs)
	}
	refused, asked, started := errors.New("refused"), false, false
	streams := engine.Streams{
		Starting: func(container, command string) error {
			asked = true
			if container != c.ID || command == "" {
				t.Errorf("command %q starts in container %q", command, container)
			}
			return refused
		},
		Started: func() { started = true },
	}
	if _, err := s.Engine.ExecStreams(t.Context(), c.ID, engine.Command{Args: []string{"/bin/box", "exit", "0"}}, streams); errors.Is(err, refused) != asked || started == asked {
		t.Errorf("ExecStreams that is refused: %v, asked %t, started %t", err, asked, started)
	}
	if _, err := s.Engine.ExecStreams(t.Context(), "nobody", engine.Command{Args: []string{"/bin/box"}}, engine.Streams{}); err == nil {
		t.Error("ExecStreams in an absent container succeeded")
	}
}

// conformAttachCreated: who attaches before the process starts gets all that it writes.
func conformAttachCreated(t *testing.T, s Subject) {
	c := s.Config(t, "pod1", "once", "listen")
	c.Stdin, c.StdinOnce = true, true
	var out bytes.Buffer
	attached, ended := make(chan struct{}), make(chan error, 1)
	c.Created = func() {
		streams := engine.Streams{Stdin: strings.NewReader("hello\n"), Stdout: &out, Started: func() { close(attached) }}
		go func() { ended <- s.Engine.Attach(t.Context(), c.ID, streams) }()
		select {
		case <-attached:
		case err := <-ended:
			ended <- err
		}
	}
	if err := s.Engine.Start(t.Context(), c); err != nil {
		t.Fatalf("Start: %v", err)
	}
	if err := <-ended; err != nil || !strings.HasPrefix(out.String(), "listening\nhello\n") {
		t.Errorf("Attach: %v, output %q", err, &out)
	}
	if c := awaitExit(t, s.Engine, c.ID); c.Exit.ExitCode != 0 {
		t.Errorf("exit code %d", c.Exit.ExitCode)
	}
}

// conformAttach: input reaches the container, its output comes back, and the input of a container with StdinOnce ends
// with the first one who has attached.
func conformAttach(t *testing.T, s Subject) {
	once := s.Config(t, "pod1", "once", "listen")
	once.Stdin, once.StdinOnce = true, true
	open := s.Config(t, "pod1", "open", "listen")
	open.Stdin = true
	for _, c := range []engine.ContainerConfig{once, open} {
		if err := s.Engine.Start(t.Context(), c); err != nil {
			t.Fatalf("Start: %v", err)
		}
	}
	var out bytes.Buffer
	begun := false
	streams := engine.Streams{Stdin: strings.NewReader("hello\n"), Stdout: &out, Started: func() { begun = true }}
	if err := s.Engine.Attach(t.Context(), once.ID, streams); err != nil || !begun || !strings.Contains(out.String(), "hello\n") {
		t.Errorf("Attach: %v, begun %t, output %q", err, begun, &out)
	}
	if c := awaitExit(t, s.Engine, once.ID); c.Exit.ExitCode != 0 {
		t.Errorf("exit code %d", c.Exit.ExitCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Engine.Attach(ctx, open.ID, engine.Streams{Stdin: strings.NewReader("hello\n"), Stdout: &out, Started: cancel}); !errors.Is(err, context.Canceled) {
		t.Errorf("Attach that is canceled: %v", err)
	}
	if c, _ := find(t, s.Engine, open.ID); c.State != engine.StateRunning {
		t.Errorf("a container whose input stays open: %s", c.State)
	}
	if err := s.Engine.Attach(t.Context(), "nobody", engine.Streams{}); err == nil {
		t.Error("attached to an absent container")
	}
}
