package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRead(t *testing.T) {
	t.Parallel()
	const all = "out 0\nerr 1\nlong line\n"
	text := log("oFout 0", "eFerr 1", "oPlong ", "oFline")
	for _, tt := range []struct {
		name     string
		files    map[string]string
		o        Options
		out, err string
	}{
		{name: "both streams", files: map[string]string{"0.log": text}, out: "out 0\nlong line\n", err: "err 1\n"},
		{
			name:  "rotated files first",
			files: map[string]string{"0.log": log("oFc"), "0.log.20260102-030405": log("oFa"), "0.log.20260102-030406": log("oFb")},
			out:   "a\nb\nc\n",
		},
		{
			name:  "a line across files",
			files: map[string]string{"0.log": log("oFb"), "0.log.20260102-030405": log("oPa")},
			out:   "ab\n",
		},
		{
			name:  "timestamps",
			files: map[string]string{"0.log": text},
			o:     Options{Timestamps: true},
			out:   "2026-01-02T03:04:00Z out 0\n2026-01-02T03:04:00.000000002Z long line\n",
			err:   "2026-01-02T03:04:00.000000001Z err 1\n",
		},
		{
			name:  "since",
			files: map[string]string{"0.log": text},
			o:     Options{Since: time.Date(2026, 1, 2, 3, 4, 0, 1, time.UTC)},
			out:   "long line\n", err: "err 1\n",
		},
		{
			name:  "since drops the whole line",
			files: map[string]string{"0.log": text},
			o:     Options{Since: time.Date(2026, 1, 2, 3, 4, 0, 3, time.UTC)},
		},
		{name: "tail", files: map[string]string{"0.log": text}, o: Options{Tail: new(2)}, out: "long line\n", err: "err 1\n"},
		{name: "no end", files: map[string]string{"0.log": log("oPab")}, out: "ab"},
		{name: "torn entry", files: map[string]string{"0.log": log("oFa") + "2026-01-02T"}, out: "a\n"},
		{name: "entry without newline", files: map[string]string{"0.log": "2026-01-02T03:04:05Z stdout F a"}, out: "a\n"},
		{name: "not an entry", files: map[string]string{"0.log": "panic: x\n" + log("eFb")}, out: "panic: x\n", err: "b\n"},
		{name: "empty", files: map[string]string{"0.log": ""}},
		{name: "other containers' logs", files: map[string]string{"0.log": log("oFa"), "1.log": log("oFb"), "10.log": ""}, out: "a\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			fill(t, dir, tt.files)
			var out, errs bytes.Buffer
			if err := Read(t.Context(), filepath.Join(dir, "0.log"), Sinks{Stdout: &out, Stderr: &errs}, tt.o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tt.out, tt.err}, []string{out.String(), errs.String()}); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("one sink keeps the order", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		fill(t, dir, map[string]string{"0.log": text})
		var out bytes.Buffer
		if err := Read(t.Context(), filepath.Join(dir, "0.log"), Sinks{Stdout: &out, Stderr: &out}, Options{}); err != nil {
			t.Fatal(err)
		}
		if out.String() != all {
			t.Errorf("got %q, want %q", out.String(), all)
		}
	})
	t.Run("one stream", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		fill(t, dir, map[string]string{"0.log": text})
		var out bytes.Buffer
		if err := Read(t.Context(), filepath.Join(dir, "0.log"), Sinks{Stderr: &out}, Options{}); err != nil {
			t.Fatal(err)
		}
		if out.String() != "err 1\n" {
			t.Errorf("got %q", out.String())
		}
	})
}

func TestReadWithoutLog(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Tail: new(3)}} {
		err := Read(t.Context(), filepath.Join(t.TempDir(), "0.log"), Sinks{}, o)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want fs.ErrNotExist", err)
		}
	}
}

// TestReadClosesTheLog: no file stays open if one of them cannot be opened.
func TestReadClosesTheLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(log("oF1")), 0o600); err != nil {
		t.Fatal(err)
	}
	const bad = ".20260102-030405"
	if err := os.Symlink(filepath.Base(path)+bad, path+bad); err != nil {
		t.Fatal(err)
	}
	if err := Read(t.Context(), path, Sinks{}, Options{}); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("%v, want %v", err, syscall.ELOOP)
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(fds) == 0 {
		t.Fatal(fds, err)
	}
	for _, fd := range fds {
		if file, err := os.Readlink(fd); err == nil && file == path {
			t.Errorf("%s is open", file)
		}
	}
}

// A line without an end must not be held in memory for ever.
func TestReadEndlessLine(t *testing.T) {
	t.Parallel()
	piece := "oP" + strings.Repeat("x", 16<<10)
	var text strings.Builder
	const pieces = 200
	for range pieces {
		text.WriteString(log(piece))
	}
	w := &widest{}
	p := newPrinter(Sinks{Stdout: w}, Options{})
	if _, err := p.Write([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	if err := p.flush(); err != nil {
		t.Fatal(err)
	}
	if w.total != pieces*16<<10 || w.most > maxHeld+16<<10 {
		t.Errorf("%d bytes in all, %d at once", w.total, w.most)
	}
}

type widest struct{ total, most int }

func (w *widest) Write(p []byte) (int, error) {
	w.total, w.most = w.total+len(p), max(w.most, len(p))
	return len(p), nil
}

func TestTail(t *testing.T) {
	t.Parallel()
	many := make([]string, 0, 5000)
	for i := range 5000 {
		many = append(many, fmt.Sprintf("oFline %d", i))
	}
	for _, tt := range []struct {
		name            string
		files           map[string]string
		lines, maxBytes int
		want            []string
	}{
		{"fewer than asked", map[string]string{"0.log": log("oFa", "eFb")}, 5, 100, []string{"a", "b"}},
		{"the last", map[string]string{"0.log": log("oFa", "eFb", "oFc")}, 2, 100, []string{"b", "c"}},
		{"joined", map[string]string{"0.log": log("oFa", "oPb", "oFc")}, 1, 100, []string{"bc"}},
		{"unfinished counts", map[string]string{"0.log": log("oFa", "oFb", "oPc")}, 2, 100, []string{"b", "c"}},
		{"empty lines", map[string]string{"0.log": log("oFa", "oF", "oF")}, 2, 100, []string{"", ""}},
		{"only bytes", map[string]string{"0.log": log("oFabcdef", "oFgh")}, 5, 6, []string{"def", "gh"}},
		{"many", map[string]string{"0.log": log(many...)}, 3, 1000, []string{"line 4997", "line 4998", "line 4999"}},
		{
			"into rotated files",
			map[string]string{"0.log": log("oFc"), "0.log.20260102-030406": log("oFb"), "0.log.20260102-030405": log("oFa")},
			2, 100,
			[]string{"b", "c"},
		},
		{"nothing written", map[string]string{"0.log": ""}, 2, 100, nil},
		{"not text", map[string]string{"0.log": log("oFa\xffb")}, 2, 100, []string{"a\uFFFDb"}},
		{"torn", map[string]string{"0.log": log("oFa") + "2026-"}, 2, 100, []string{"a"}},
		{"none wanted", map[string]string{"0.log": log("oFa")}, 0, 100, nil},
		{"long line", map[string]string{"0.log": log("oFx", "oF"+strings.Repeat("y", 90<<10))}, 2, 4, []string{"yyyy"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			fill(t, dir, tt.files)
			got, err := Tail(filepath.Join(dir, "0.log"), tt.lines, tt.maxBytes)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTailManyLines(t *testing.T) {
	t.Parallel()
	lines := make([]string, 0, 20000)
	for i := range 20000 {
		lines = append(lines, fmt.Sprintf("oFline %d", i))
	}
	dir := t.TempDir()
	fill(t, dir, map[string]string{"0.log": log(lines[10000:]...), "0.log.20260102-030405": log(lines[:10000]...)})
	var out bytes.Buffer
	if err := Read(t.Context(), filepath.Join(dir, "0.log"), Sinks{Stdout: &out}, Options{Tail: new(15000)}); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(got) != 15000 || got[0] != "line 5000" || got[14999] != "line 19999" {
		t.Errorf("%d lines from %q to %q", len(got), got[0], got[len(got)-1])
	}
}

func BenchmarkTail(b *testing.B) {
	line := log("oF" + strings.Repeat("x", 100))
	dir := b.TempDir()
	path := filepath.Join(dir, "0.log")
	fillFile(b, path, strings.Repeat(line, 10<<20/len(line)))
	for b.Loop() {
		if got, err := Tail(path, 10, 4<<10); err != nil || len(got) != 10 {
			b.Fatal(len(got), err)
		}
	}
}
