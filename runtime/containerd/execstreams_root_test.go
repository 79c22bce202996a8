package containerd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/engine"
)

func TestExecStreams(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	if err := e.Start(t.Context(), p.box(t, "a", "sleep")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		command   []string
		in        io.Reader
		code      int32
		out, errs string
		err       string
	}{
		{name: "input", command: []string{"box", "listen"}, in: strings.NewReader("hello\n"), out: "listening\nhello\nend\n"},
		{name: "input that is not read", command: []string{"box", "echo", "hello"}, in: strings.NewReader(strings.Repeat("x", 1<<20)), out: "hello\n"},
		{name: "errors", command: []string{"box", "error", "oops"}, errs: "oops\n"},
		{name: "exit code", command: []string{"box", "exit", "9", "bye"}, code: 9, out: "bye\n"},
		{name: "missing", command: []string{"nope"}, err: `running "nope" in container "a": exec: "nope": executable file not found in $PATH`},
		{name: "none", err: `running a command in container "a": there is none`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code, err := e.ExecStreams(t.Context(), "a", tc.command, engine.Streams{Stdin: tc.in, Stdout: &out, Stderr: &errs})
			if fmt.Sprint(err) != fmt.Sprint(errorOf(tc.err)) {
				t.Errorf("error %v", err)
			}
			if tc.err != "" {
				return // the OCI runtime may write to the streams
			}
			if code != tc.code || out.String() != tc.out || errs.String() != tc.errs {
				t.Errorf("%d %q %q", code, &out, &errs)
			}
		})
	}
	t.Run("much output", func(t *testing.T) {
		var out bytes.Buffer
		if _, err := e.ExecStreams(t.Context(), "a", []string{"box", "flood", "-n", "20000", "-size", "80"}, engine.Streams{Stdout: &out}); err != nil {
			t.Error(err)
		}
		if n := bytes.Count(out.Bytes(), []byte("\n")); n != 20000 {
			t.Errorf("%d lines", n)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		var out bytes.Buffer
		in, open := io.Pipe() // whose end would be one of the terminal
		defer func() { _ = open.Close() }()
		sizes := make(chan engine.Size)
		go func() {
			for range 2 { // the second one is taken when the first one is set
				sizes <- engine.Size{Width: 132, Height: 43}
			}
			if _, err := e.Exec(t.Context(), "a", []string{"box", "write", "/sized", "yes"}); err != nil {
				t.Error(err)
			}
		}()
		command := []string{"box", "do", "await /sized", "facts"}
		_, err := e.ExecStreams(t.Context(), "a", command, engine.Streams{Stdin: in, Stdout: &out, TTY: true, Resize: sizes})
		if err != nil {
			t.Fatal(err)
		}
		var facts struct {
			Stdin, Stdout, Stderr string
			TTYSize               []int
			Env                   any
		}
		if err := json.Unmarshal(out.Bytes(), &facts); err != nil {
			t.Fatalf("%v: %q", err, &out)
		}
		if got := fmt.Sprint(facts.Stdin, facts.Stdout, facts.Stderr, facts.TTYSize); got != "ttyttytty[43 132]" || !strings.Contains(out.String(), "TERM") {
			t.Errorf("%s: %s", got, &out)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := e.ExecStreams(ctx, "a", []string{"box", "stay", "1h2s"}, engine.Streams{Stdout: io.Discard})
		if !errors.Is(err, context.DeadlineExceeded) || running(t, "stay\x001h2s") {
			t.Errorf("error %v", err)
		}
	})
	left, err := os.ReadDir(filepath.Join(p.dir, "state", "exec"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// errorOf is an error with the text, nil for none.
func errorOf(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}
