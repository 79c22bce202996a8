package logs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is the time of the tests' writers.
const at = "2026-01-02T03:04:05.6Z"

func testWriter(t *testing.T, limit int64, keep int) *Writer {
	t.Helper()
	w, err := OpenWriter(filepath.Join(t.TempDir(), "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	if limit > 0 {
		w.limit, w.keep = limit, keep
	}
	w.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6e8, time.UTC) }
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestWriterCopy(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxLine)
	for _, tc := range []struct {
		name string
		in   string
		want []string
	}{
		{name: "nothing"},
		{name: "a line", in: "hello\n", want: []string{"F hello"}},
		{name: "lines", in: "a\n\nb c\n", want: []string{"F a", "F ", "F b c"}},
		{name: "no end", in: "a\nprompt> ", want: []string{"F a", "P prompt> "}},
		{name: "carriage return", in: "a\r\nb\rc\n", want: []string{"F a", "F b\rc"}},
		{name: "as long as may be", in: long + "\n", want: []string{"F " + long}},
		{name: "with carriage return", in: long + "\r\n", want: []string{"F " + long}},
		{name: "longer by one", in: long + "y\n", want: []string{"P " + long, "F y"}},
		{name: "much longer", in: long + long + "y\nz\n", want: []string{"P " + long, "P " + long, "F y", "F z"}},
		{name: "longer without end", in: long + "y", want: []string{"P " + long, "P y"}},
		{name: "zero bytes", in: "\x00\xff\n", want: []string{"F \x00\xff"}},
	} {
		for _, reader := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.HalfReader, iotest.DataErrReader,
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				w := testWriter(t, 0, 0)
				if err := w.Copy("stderr", reader(strings.NewReader(tc.in))); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, entries(t, w.path)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// entries returns the file's entries without time and stream.
func entries(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		if line == "" {
			continue
		}
		rest, ok := strings.CutPrefix(line, at+" stderr ")
		if !ok {
			t.Fatalf("entry %.80q", line)
		}
		got = append(got, rest)
	}
	return got
}

func TestWriterReportsAFailedRead(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 0, 0)
	broken := errors.New("broken")
	if err := w.Copy("stderr", io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{"F a", "P b"}, entries(t, w.path)); diff != "" {
		t.Error(diff)
	}
}

func TestWriterKeepsReadingWhenItCannotWrite(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 0, 0)
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	in := strings.NewReader(strings.Repeat("line\n", 100_000))
	if err := w.Copy("stdout", in); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v", err)
	}
	if in.Len() != 0 {
		t.Errorf("%d bytes were not read", in.Len())
	}
}

func TestWriterRotates(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 1000, 3)
	var want []string
	for i := range 200 {
		if err := w.Copy("stderr", strings.NewReader(fmt.Sprintf("line %d\n", i))); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("F line %d", i))
	}
	old, err := rotatedFiles(w.path)
	if err != nil {
		t.Fatal(err)
	}
	if len(old) != 2 {
		t.Fatalf("rotated files %q", old)
	}
	var got []string
	for _, path := range append(old, w.path) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 1000 {
			t.Errorf("%s has %d bytes", path, info.Size())
		}
		got = append(got, entries(t, path)...)
	}
	// The oldest lines are gone, and no other is.
	if len(got) < 40 || !slices.Equal(got, want[len(want)-len(got):]) {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

// TestWriterGoesOnAfterAFailedClose: what a rotation could not close, as on a full network file system,
// costs the output of that moment alone.
func TestWriterGoesOnAfterAFailedClose(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 100, 3)
	line := strings.Repeat("x", 90) + "\n"
	if err := w.Copy("stdout", strings.NewReader(line)); err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Copy("stdout", strings.NewReader(line)); err == nil {
		t.Error("the file was closed twice without an error")
	}
	if err := w.Copy("stdout", strings.NewReader("after\n")); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(w.path); err != nil || !strings.HasSuffix(string(got), " stdout F after\n") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWriterAppendsToAnOldFile(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 0, 0)
	for _, text := range []string{"a\n", "b\n"} {
		if err := w.Copy("stderr", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	again, err := OpenWriter(w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if again.size == 0 {
		t.Error("its size is not known")
	}
	if diff := cmp.Diff([]string{"F a", "F b"}, entries(t, w.path)); diff != "" {
		t.Error(diff)
	}
}

func TestWriterKeepsEntriesWholeBetweenStreams(t *testing.T) {
	t.Parallel()
	w := testWriter(t, 50_000, 5)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := w.Copy("stderr", strings.NewReader(strings.Repeat("0123456789\n", 2000))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	old, err := rotatedFiles(w.path)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range append(old, w.path) {
		for _, e := range entries(t, path) {
			if e != "F 0123456789" {
				t.Fatalf("entry %q", e)
			}
			count++
		}
	}
	if count != 4000 {
		t.Errorf("%d entries", count)
	}
}

func BenchmarkWriterCopy(b *testing.B) {
	w, err := OpenWriter(filepath.Join(b.TempDir(), "0.log"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	in := strings.Repeat("a line of the usual length, some eighty bytes, as programs write them to stdout\n", 10_000)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := w.Copy("stdout", strings.NewReader(in)); err != nil {
			b.Fatal(err)
		}
	}
}
