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
	"sync"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
)

// TestExec: commands with streams of their own, and those of which the output is wanted.
func TestExec(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	if err := e.Start(t.Context(), p.box(t, "a", "sleep")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name      string
		command   []string
		in        io.Reader // of streams only
		code      int32
		out, errs string
		err       string
	}{
		{name: "input", command: []string{"box", "listen"}, in: strings.NewReader("hello\n"), out: "listening\nhello\nend\n"},
		{name: "input that is not read", command: []string{"box", "echo", "hello"}, in: strings.NewReader(strings.Repeat("x", 1<<20)), out: "hello\n"},
		{name: "output", command: []string{"box", "echo", "hello"}, out: "hello\n"},
		{name: "errors", command: []string{"box", "error", "oops"}, errs: "oops\n"},
		{name: "exit code", command: []string{"box", "exit", "9", "bye"}, code: 9, out: "bye\n"},
		{name: "missing", command: []string{"nope"}, err: `running "nope" in container "a": exec: "nope": executable file not found in $PATH`},
		{name: "none", err: `running "" in container "a": there is no command`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code, err := e.ExecStreams(t.Context(), "a", engine.Command{Args: tc.command}, engine.Streams{Stdin: tc.in, Stdout: &out, Stderr: &errs})
			if textOf(err) != tc.err || err == nil && (code != tc.code || out.String() != tc.out || errs.String() != tc.errs) {
				t.Errorf("with streams: %d %q %q, %v", code, &out, &errs, err)
			}
			if tc.in != nil {
				return
			}
			got, err := e.Exec(t.Context(), "a", tc.command)
			if textOf(err) != tc.err || err == nil && (got.ExitCode != tc.code || string(got.Output) != tc.out+tc.errs) {
				t.Errorf("%d %q, %v", got.ExitCode, got.Output, err)
			}
		})
	}
	t.Run("much output", func(t *testing.T) {
		var out bytes.Buffer
		flood := []string{"box", "flood", "-n", "20000", "-size", "80"}
		if _, err := e.ExecStreams(t.Context(), "a", engine.Command{Args: flood}, engine.Streams{Stdout: &out}); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 20000 {
			t.Errorf("with streams: %d lines, %v", bytes.Count(out.Bytes(), []byte("\n")), err)
		}
		if got, err := e.Exec(t.Context(), "a", flood); err != nil || len(got.Output) != engine.MaxExecOutput {
			t.Errorf("%d bytes, %v", len(got.Output), err)
		}
	})
	t.Run("terminal", func(t *testing.T) {
		var out bytes.Buffer
		in, open := io.Pipe() // whose end would be one of the terminal
		defer func() { _ = open.Close() }()
		sizes := make(chan engine.Size)
		var resizing sync.WaitGroup
		defer resizing.Wait()
		resizing.Go(func() {
			for range 2 { // the second one is taken when the first one is set
				sizes <- engine.Size{Width: 132, Height: 43}
			}
			if _, err := e.Exec(t.Context(), "a", []string{"box", "write", "/sized", "yes"}); err != nil {
				t.Error(err)
			}
		})
		command := []string{"box", "do", "await /sized", "facts"}
		_, err := e.ExecStreams(t.Context(), "a", engine.Command{Args: command}, engine.Streams{Stdin: in, Stdout: &out, TTY: true, Resize: sizes})
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
	t.Run("size", func(t *testing.T) { // has it when it starts
		var out bytes.Buffer
		streams := engine.Streams{Stdout: &out, TTY: true, Size: engine.Size{Width: 132, Height: 43}}
		_, err := e.ExecStreams(t.Context(), "a", engine.Command{Args: []string{"box", "facts"}}, streams)
		if err != nil || !strings.Contains(out.String(), `"ttySize":[43,132]`) {
			t.Errorf("%v: %s", err, &out)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		cut := func(after time.Duration, exec func(ctx context.Context, command []string) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if err := exec(ctx, []string{"box", "stay", "1h1s"}); !errors.Is(err, context.DeadlineExceeded) || running(t, "stay\x001h1s") {
				t.Errorf("after %s: error %v, or the command still runs", after, err)
			}
		}
		// Also while the command is being started.
		for after := time.Millisecond; after < time.Second; after += after / 2 {
			cut(after, func(ctx context.Context, command []string) error {
				_, err := e.Exec(ctx, "a", command)
				return err
			})
		}
		cut(500*time.Millisecond, func(ctx context.Context, command []string) error {
			_, err := e.ExecStreams(ctx, "a", engine.Command{Args: command}, engine.Streams{Stdout: io.Discard})
			return err
		})
	})
	t.Run("what it has started", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var started bool
		command := engine.Command{Args: []string{"box", "do", "beside stay 1h2s", "stay 1h3s"}}
		_, err := e.ExecStreams(ctx, "a", command, engine.Streams{Stdout: io.Discard, Started: func() {
			started = true
			go func() {
				for !running(t, "stay\x001h2s") {
					time.Sleep(10 * time.Millisecond)
				}
				cancel()
			}()
		}})
		if !started || !errors.Is(err, context.Canceled) {
			t.Errorf("started %t, error %v", started, err)
		}
		for begin := time.Now(); running(t, "stay\x001h2s") || running(t, "stay 1h3s"); time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Fatal("it still runs")
			}
		}
	})
	t.Run("the rest of the process", func(t *testing.T) {
		var out bytes.Buffer
		command := engine.Command{Args: []string{"box", "facts"}, Env: []string{"COLOR=red"}, Dir: "/proc", User: &specs.User{UID: 7, GID: 8}}
		_, err := e.ExecStreams(t.Context(), "a", command, engine.Streams{Stdout: &out})
		for _, want := range []string{`"COLOR":"red"`, `"uid":7`, `"gid":8`, `"cwd":"/proc"`} {
			if err != nil || !strings.Contains(strings.ReplaceAll(out.String(), " ", ""), want) {
				t.Errorf("no %s: %s, %v", want, &out, err)
			}
		}
	})
	t.Run("absent container", func(t *testing.T) {
		if _, err := e.Exec(t.Context(), "none", []string{"box"}); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("error %v", err)
		}
	})
	left, err := os.ReadDir(filepath.Join(p.dir, "state", "exec"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// textOf returns the text of an error, "" for none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestOutOfMemory(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	c := p.box(t, "a", "alloc", "200")
	limit := int64(32 << 20)
	c.Spec.Linux.Resources.Memory = memoryLimit(limit)
	if err := e.Start(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := eventually(t, e, "a", engine.StateExited); got.Exit.ExitCode != 137 || !got.Exit.OOMKilled {
		t.Errorf("%+v", got.Exit)
	}
}

func TestImages(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	img, err := e.Image(t.Context(), boxRef)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(img.Passwd, []byte("app:x:1000")) || !bytes.Contains(img.Group, []byte("extra:x:2000")) {
		t.Errorf("users %q %q", img.Passwd, img.Group)
	}
	if len(img.Entrypoint) != 1 || img.Entrypoint[0] != "/bin/box" || !strings.HasPrefix(img.ID, "sha256:") || img.ID == img.Digest || img.Size == 0 {
		t.Errorf("%+v", img)
	}
	byDigest, err := e.Image(t.Context(), "localhost/box@"+img.Digest)
	if err != nil || byDigest.ID != img.ID {
		t.Errorf("by digest: %v", err)
	}
	if _, err := e.Image(t.Context(), "localhost/none:1"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("absent: %v", err)
	}
	var permanent interface{ Permanent() bool }
	if _, err := e.Image(t.Context(), "Not a Reference"); !errors.As(err, &permanent) || !permanent.Permanent() {
		t.Errorf("invalid: %v", err)
	}
	all, err := e.ListImages(t.Context())
	if err != nil || len(all) != 1 || all[0].Ref != boxRef || all[0].Digest != img.Digest || all[0].Size == 0 {
		t.Errorf("%+v %v", all, err)
	}
}

// TestImportRefusesRubbish: nothing stays of an archive that is not one, or not complete.
func TestImportRefusesRubbish(t *testing.T) {
	p := newTestDirs(t)
	e := p.open(t, t.Context())
	archive, err := boxArchive()
	if err != nil {
		t.Fatal(err)
	}
	corrupt := bytes.Clone(archive)
	corrupt[len(corrupt)*2/3] ^= 1 // in the layer, which is nearly all of it
	for _, in := range [][]byte{nil, []byte("not an archive"), []byte("\x1f\x8b\x08 truncated"), archive[:len(archive)/2], corrupt} {
		refs, err := e.ImportArchive(t.Context(), archiveOf(t, in))
		if err == nil || errors.Is(err, containerd.ErrUnusable) {
			t.Errorf("imported %q from %d bytes, %v", refs, len(in), err)
		}
	}
	if all, err := e.ListImages(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("images %v, %v", all, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"blobs/sha256", "ingest"} {
		if left, err := filepath.Glob(filepath.Join(p.dir, "root/io.containerd.content.v1.content", dir, "*")); err != nil || len(left) > 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	}
}
