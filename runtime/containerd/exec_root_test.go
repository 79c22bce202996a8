package containerd_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/runtime/containerd"
	"github.com/runonce/runonce/runtime/engine"
)

func TestExec(t *testing.T) {
	p := newTestDirs(t)
	e := p.openWithBox(t)
	if err := e.Start(t.Context(), p.box(t, "a", "sleep")); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		command []string
		code    int32
		output  string
		err     string
	}{
		{name: "output", command: []string{"box", "echo", "hello"}, output: "hello\n"},
		{name: "stderr", command: []string{"box", "error", "oops"}, output: "oops\n"},
		{name: "exit code", command: []string{"box", "exit", "9", "bye"}, code: 9, output: "bye\n"},
		{name: "missing", command: []string{"nope"}, err: `running "nope" in container "a": exec: "nope": executable file not found in $PATH`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := e.Exec(t.Context(), "a", tc.command)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.ExitCode != tc.code || string(got.Output) != tc.output {
				t.Errorf("%d %q", got.ExitCode, got.Output)
			}
		})
	}
	t.Run("much output", func(t *testing.T) {
		got, err := e.Exec(t.Context(), "a", []string{"box", "flood", "-n", "20000"})
		if err != nil || len(got.Output) != engine.MaxExecOutput {
			t.Errorf("%d bytes, %v", len(got.Output), err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		// Also while the command is being started.
		for after := time.Millisecond; after < time.Second; after += after / 2 {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			_, err := e.Exec(ctx, "a", []string{"box", "stay", "1h1s"})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %s: error %v", after, err)
			}
			if running(t, "stay\x001h1s") {
				t.Errorf("after %s: the command still runs", after)
			}
		}
	})
	t.Run("absent container", func(t *testing.T) {
		if _, err := e.Exec(t.Context(), "none", []string{"box"}); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("error %v", err)
		}
	})
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
		refs, err := e.ImportArchive(t.Context(), bytes.NewReader(in))
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
