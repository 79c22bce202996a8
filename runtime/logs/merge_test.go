package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// linesAt returns a source with a line for each of the seconds; a negative one has no time.
func linesAt(name string, seconds ...int) Source {
	return func(_ context.Context, line func(Line) error) error {
		for _, s := range seconds {
			l := Line{Stream: Stdout, Text: fmt.Appendf(nil, "%s%d\n", name, s)}
			if s >= 0 {
				l.Time = time.Unix(int64(s), 0)
			}
			if err := line(l); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestMerge: lines are in the order of their times, and those of a source in theirs.
func TestMerge(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	fails := func(ctx context.Context, line func(Line) error) error {
		return errors.Join(linesAt("f", 2)(ctx, line), bad)
	}
	many := make([]int, 1000)
	for i := range many {
		many[i] = i
	}
	for _, tt := range []struct {
		name    string
		sources []Source
		want    string // "" for not compared
		lines   int
		err     error
	}{
		{name: "none"},
		{name: "one", sources: []Source{linesAt("a", 1, 2)}, want: "a1 a2", lines: 2},
		{name: "two", sources: []Source{linesAt("a", 1, 4, 5), linesAt("b", 2, 3, 6)}, want: "a1 b2 b3 a4 a5 b6", lines: 6},
		{name: "equal times", sources: []Source{linesAt("a", 1, 2), linesAt("b", 1, 2)}, want: "a1 b1 a2 b2", lines: 4},
		{name: "one goes back", sources: []Source{linesAt("a", 5, 1, 6), linesAt("b", 4, 7)}, want: "b4 a5 a1 a6 b7", lines: 5},
		{name: "without times", sources: []Source{linesAt("a", 3, -1, 5), linesAt("b", 4)}, want: "a3 a-1 b4 a5", lines: 4},
		{name: "an error", sources: []Source{linesAt("a", 1, 3), fails}, want: "a1 f2 a3", lines: 3, err: bad},
		{name: "more than are read ahead", sources: []Source{linesAt("a", many...), linesAt("b", many...)}, lines: 2000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			last := time.Time{}
			err := Merge(t.Context(), tt.sources, func(_ int, l Line) error {
				if tt.want == "" && l.Time.Before(last) {
					t.Errorf("%s after %s", l.Time, last)
				}
				last = l.Time
				got = append(got, strings.TrimSpace(string(l.Text)))
				return nil
			})
			if !errors.Is(err, tt.err) || len(got) != tt.lines || tt.want != "" && strings.Join(got, " ") != tt.want {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestMergeEnds: an error of the reader ends it, also while sources have more.
func TestMergeEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("full")
		endless := func(ctx context.Context, line func(Line) error) error {
			for i := 0; ; i++ {
				if err := linesAt("x", i)(ctx, line); err != nil {
					return err
				}
			}
		}
		for _, f := range []func(context.Context, []Source, func(int, Line) error) error{Merge, Interleave} {
			n := 0
			err := f(t.Context(), []Source{endless, endless}, func(int, Line) error {
				if n++; n == 100 {
					return full
				}
				return nil
			})
			if !errors.Is(err, full) || n != 100 {
				t.Errorf("%d lines, %v", n, err)
			}
		}
	})
}

// TestInterleave: lines come as they are written, whole, also to a reader that is slow; it ends with the last source.
func TestInterleave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		paced := func(name string, n int, pause time.Duration) Source {
			return func(ctx context.Context, line func(Line) error) error {
				for i := range n {
					time.Sleep(pause)
					if err := linesAt(name, i)(ctx, line); err != nil {
						return err
					}
				}
				return nil
			}
		}
		var got []string
		busy := false
		err := Interleave(t.Context(), []Source{paced("a", 3, time.Second), paced("b", 1, 1500*time.Millisecond)}, func(_ int, l Line) error {
			if busy {
				t.Error("two lines at once")
			}
			busy = true
			time.Sleep(100 * time.Millisecond)
			busy = false
			got = append(got, strings.TrimSpace(string(l.Text)))
			return nil
		})
		if took := time.Since(begin); err != nil || !slices.Equal(got, []string{"a0", "b0", "a1", "a2"}) || took != 3300*time.Millisecond {
			t.Errorf("%v after %s, %v", got, took, err)
		}
	})
}

// TestLines: lines have the times of their beginnings, whole lines as far as that can be.
func TestLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	at := func(s int) string { return time.Unix(int64(s), 0).UTC().Format(time.RFC3339Nano) }
	long := strings.Repeat("x", maxHeld)
	content := at(1) + " stdout P one\n" + at(2) + " stderr F err\n" + at(3) + " stdout F  line\nbroken\n" + at(4) + " stdout P " + long + "\n" + at(5) + " stdout F end\n" + at(6) + " stdout P last\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := Read(t.Context(), path, Sinks{Lines: func(l Line) error {
		second := l.Time.Unix()
		if l.Time.IsZero() {
			second = 0
		}
		got = append(got, fmt.Sprintf("%d %s %d %.9q", second, l.Stream, len(l.Text), l.Text))
		return nil
	}}, Options{})
	want := []string{
		`2 stderr 4 "err\n"`, `1 stdout 9 "one line\n"`, `0 stdout 7 "broken\n"`,
		fmt.Sprintf(`4 stdout %d "xxxxxxxxx"`, maxHeld), `0 stdout 4 "end\n"`, `6 stdout 4 "last"`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

// FuzzLineWriter: however a text is cut, its lines are the same, and nothing of it is lost.
func FuzzLineWriter(f *testing.F) {
	f.Add("2030-01-02T03:04:05.123456789Z one\n2030-01-02T03:04:05Z \nno time\n2030-01-02T03:04:06Z", 7)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 1 {
			return
		}
		parse := func(timestamps bool, size int) (lines []string, all string) {
			w, flush := LineWriter(timestamps, func(l Line) error {
				lines = append(lines, l.Time.String()+string(l.Text))
				all += string(l.Text)
				return nil
			})
			if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{bytes.NewReader([]byte(text))}, make([]byte, min(size, 1<<20))); err != nil {
				t.Fatal(err)
			}
			if err := flush(); err != nil {
				t.Fatal(err)
			}
			return lines, all
		}
		if _, all := parse(false, size); all != text {
			t.Errorf("%q, want %q", all, text)
		}
		whole, _ := parse(true, len(text)+1)
		if cut, _ := parse(true, size); !slices.Equal(cut, whole) {
			t.Errorf("%q, want %q", cut, whole)
		}
	})
}
