package enginetest

import (
	"bytes"
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
