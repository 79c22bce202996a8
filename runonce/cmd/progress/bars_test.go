package progress

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/engine"
)

// terminal interprets what the bars use: lines, and going up with everything below erased.
type terminal struct {
	mu    sync.Mutex
	lines []string // the last one is not finished
}

var up = regexp.MustCompile(`\x1b\[(\d+)A\x1b\[J`)

func (tm *terminal) Write(p []byte) (int, error) {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	text := string(p)
	for text != "" {
		part := text
		at := up.FindStringSubmatchIndex(text)
		if at != nil {
			part = text[:at[0]]
		}
		tm.lines = strings.Split(strings.Join(tm.lines, "\n")+part, "\n")
		if at == nil {
			break
		}
		n, err := strconv.Atoi(text[at[2]:at[3]])
		if err != nil {
			return 0, err
		}
		tm.lines = append(tm.lines[:max(0, len(tm.lines)-1-n)], "")
		text = text[at[1]:]
	}
	return len(p), nil
}

func (tm *terminal) String() string {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	lines := make([]string, 0, len(tm.lines))
	for _, l := range tm.lines {
		lines = append(lines, strings.TrimRight(l, " "))
	}
	return strings.Join(lines, "\n")
}

// TestBars: bars are below the lines while something lasts, and leave nothing behind.
func TestBars(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tm terminal
		d := New(&tm, nil)
		d.mode = Bars
		e := &events{Display: d, total: 2}
		want := func(text string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(text, tm.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		}
		e.on("a", "Starting", "", "")
		e.on("b", "Starting", "", "")
		time.Sleep(10 * time.Millisecond) // between the frames
		go e.pull("registry.example/xx", 120e6)
		time.Sleep(100 * time.Millisecond)
		want("default/a: Starting\ndefault/b: Starting\npulling image registry.example/xx\n")
		time.Sleep(5 * time.Second)
		want(`default/a: Starting
default/b: Starting
pulling image registry.example/xx
pulling registry.example/xx [========>--------] 60 of 120 MB, 12.0 MB/s, 5s left
waiting for 2 of 2 pods: default/a: starting; default/b: starting
`)
		e.on("b", "Running", "", "")
		if _, err := d.Stderr().Write([]byte("level=WARN msg=careful\n")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		want(`default/a: Starting
default/b: Starting
pulling image registry.example/xx
default/b: Running
level=WARN msg=careful
pulling registry.example/xx [=========>-------] 72 of 120 MB, 12.0 MB/s, 4s left
waiting for 1 of 2 pods: default/a: starting
`)
		if _, err := d.Stdout(&tm).Write([]byte("a result\n")); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		e.on("a", "Running", "", "")
		d.Close()
		want(`default/a: Starting
default/b: Starting
pulling image registry.example/xx
default/b: Running
level=WARN msg=careful
a result
pulled image registry.example/xx (120 MB in 9s)
default/a: Running
`)
	})
}

// TestCopying: a copy that takes long is shown while it does, also if its size is not known, and then no longer.
func TestCopying(t *testing.T) {
	t.Parallel()
	copies := func(total int64) func(e *events) {
		return func(e *events) {
			for i := range int64(160) {
				e.transfer(engine.Transfer{Step: engine.Copying, Name: `"web:/x\ny"`, Done: i * 7e5, Total: total})
				time.Sleep(70 * time.Millisecond)
			}
			e.transfer(engine.Transfer{Step: engine.Copying, Name: `"web:/x\ny"`, Done: 120e6, Total: total, Ended: true})
		}
	}
	for total, want := range map[int64]string{
		0:     "copying \"web:/x\\ny\" 99 MB, 9.9 MB/s\n",
		120e6: "copying \"web:/x\\ny\" 99 of 120 MB, 9.9 MB/s, 3s left\n",
	} {
		if got := shown(t, Lines, nil, copies(total)); got != want {
			t.Errorf("%d: %q, want %q", total, got, want)
		}
	}
}

// TestRowFits: a row is never wider than the terminal, and loses its bar first.
func TestRowFits(t *testing.T) {
	t.Parallel()
	r := row{title: "pulling x", done: 3, total: 4, numbers: "3 of 4 MB"}
	for width, want := range map[int]string{
		60: "pulling x [=====================-------] 3 of 4 MB", 30: "pulling x [=====>--] 3 of 4 MB", 20: "pulling x 3 of 4 MB", 12: "pulling x…",
	} {
		want = strings.Replace(want, "=-", ">-", 1)
		if got := r.text(width); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
	if got := (row{title: "\u5f85\u3064\u5f85\u3064"}).text(7); got != "\u5f85\u3064…" {
		t.Errorf("%q", got)
	}
}

// TestShorten: a text is cut after a word, unless that leaves too little of it.
func TestShorten(t *testing.T) {
	t.Parallel()
	const text = `waiting for 1 of 2 pods: default/web: container "main" is waiting`
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{text, 100, text},
		{text, len(text), text},
		{text, len(text) - 1, `waiting for 1 of 2 pods: default/web: container "main" is…`},
		{text, 38, "waiting for 1 of 2 pods: default/web…"},
		{text, 36, "waiting for 1 of 2 pods…"},
		{"averyveryverylongword", 10, "averyvery…"},
		{"a veryveryverylongword", 10, "a veryver…"},
		{"größere Änderung", 9, "größere…"},
		{"", 1, ""},
	} {
		if got := shorten(c.text, c.most); got != c.want {
			t.Errorf("%d of %q: %q, want %q", c.most, c.text, got, c.want)
		}
	}
}
