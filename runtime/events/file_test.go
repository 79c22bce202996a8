package events

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podevent"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// event is one that has happened some seconds after start.
func event(seconds int, reason, message string) podevent.Event {
	return podevent.At(start.Add(time.Duration(seconds)*time.Second), podevent.Event{Type: "Normal", Reason: reason, Message: message})
}

func mustRead(t *testing.T, path string) []podevent.Event {
	t.Helper()
	all, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mustAppend(t *testing.T, path string, events ...podevent.Event) {
	t.Helper()
	if err := Append(path, events...); err != nil {
		t.Fatal(err)
	}
}

// TestFile: what was appended is read, and what happens again is counted.
func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	if got := mustRead(t, path); got != nil {
		t.Errorf("an absent file has %v", got)
	}
	mustAppend(t, path, event(0, "Created", "<x> & \"y\"\n"), event(0, "Started", "main"))
	mustAppend(t, path, event(9, "Started", "main"))
	again := event(0, "Started", "main")
	again.Count, again.LastSeen = 2, start.Add(9*time.Second)
	if diff := cmp.Diff([]podevent.Event{event(0, "Created", "<x> & \"y\""), again}, mustRead(t, path)); diff != "" {
		t.Error(diff)
	}
	if err := Append(filepath.Join(path+".d", "events"), event(0, "A", "")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}

// TestDamaged: what cannot be read costs only itself.
func TestDamaged(t *testing.T) {
	t.Parallel()
	text := func(seconds int, reason string) string {
		return string(encode([]podevent.Event{event(seconds, reason, "m")}))
	}
	torn := text(1, "Torn")[:40]
	for name, c := range map[string]struct{ before, want string }{
		"torn":          {text(0, "A") + torn, "A Z"},
		"only torn":     {torn, "Z"},
		"garbage":       {"\x00\xff\n{}\nnull\n[1]\n" + text(0, "A"), "A Z"},
		"other version": {strings.Replace(text(0, "B"), `"version":1`, `"version":2`, 1) + text(0, "A"), "A Z"},
		"no reason":     {text(0, "") + text(0, "A"), "A Z"},
		"no count":      {strings.Replace(text(0, "B"), `"count":1`, `"count":-1`, 1), "Z"},
		"backwards":     {strings.Replace(text(0, "B"), `"lastSeen":"2026`, `"lastSeen":"2025`, 1), "Z"},
		"empty":         {"", "Z"},
	} {
		path := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(path, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		mustRead(t, path)
		mustAppend(t, path, event(60, "Z", "m"))
		var got []string
		for _, e := range mustRead(t, path) {
			got = append(got, e.Reason)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// TestBounded: a file does not grow beyond its size, and has the newest events then. An event that goes on
// happening is one of them.
func TestBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	const last = 3000
	for i := range last {
		mustAppend(t, path, event(i, "Unhealthy", fmt.Sprintf("probe %d failed", i)), event(i, "BackOff", "again"))
		info, err := os.Stat(path)
		if err != nil || info.Size() > maxSize {
			t.Fatalf("after %d: %d bytes, %v", i, info.Size(), err)
		}
	}
	got := mustRead(t, path)
	tail := got[len(got)-2:]
	if tail[1].Message != fmt.Sprintf("probe %d failed", last-1) || tail[0].Count != last || !tail[0].FirstSeen.Equal(start) {
		t.Errorf("the last are %+v", tail)
	}
	// Events with messages of any length stay within it too.
	for i := range 200 {
		mustAppend(t, path, event(last+i, "Failed", fmt.Sprint(i)+strings.Repeat("\x01", 2000)))
		if info, err := os.Stat(path); err != nil || info.Size() > maxSize {
			t.Fatalf("%d bytes, %v", info.Size(), err)
		}
	}
}

// TestManyWriters: writers do not overwrite each other's events. Some may be lost only when the file is
// replaced.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	var wg sync.WaitGroup
	const writers, each = 8, 20
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := Append(path, event(i, "Started", fmt.Sprint(w))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, e := range mustRead(t, path) {
		if e.Count != each {
			t.Errorf("%s: %d events, want %d", e.Message, e.Count, each)
		}
	}
}

// TestReplaced: a writer that has opened a file which another one replaces writes to the new one.
func TestReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	mustAppend(t, path, event(0, "A", ""))
	f, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	mine, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := compact(path, mine); err != nil { // f appends to it
		t.Fatal(err)
	}
	before, after := stat(t, f), stat(t, mine)
	if !os.SameFile(before, after) {
		t.Error("a file was replaced to which somebody appends")
	}
	if err := errors.Join(f.Close(), compact(path, mine), mine.Close()); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, path, event(1, "B", ""))
	if got := mustRead(t, path); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

func stat(t *testing.T, f *os.File) fs.FileInfo {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// FuzzDecode: whatever is in a file, reading it ends, and what was read is read again.
func FuzzDecode(f *testing.F) {
	f.Add(encode([]podevent.Event{event(0, "A", "m"), event(1, "B", "m")}))
	f.Add([]byte("{\"version\":1,\"type\":\"Normal\",\"reason\":\"A\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := decode(data)
		if again := decode(encode(got)); !cmp.Equal(got, again) {
			t.Errorf("%v, then %v", got, again)
		}
		for _, e := range got {
			if e.Reason == "" || e.Type == "" || e.Count < 1 || e.LastSeen.Before(e.FirstSeen) {
				t.Errorf("%+v", e)
			}
		}
	})
}

// BenchmarkAppend is what an event costs that the start of a pod waits for.
func BenchmarkAppend(b *testing.B) {
	path := filepath.Join(b.TempDir(), "events")
	for b.Loop() {
		if err := Append(path, event(0, "Created", "Created container main"), event(0, "Started", "Started container main")); err != nil {
			b.Fatal(err)
		}
	}
}
