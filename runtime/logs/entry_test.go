package logs

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseEntry(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678900000, time.UTC)
	for _, tt := range []struct {
		name, in string
		want     entry
	}{
		{"full", "2026-01-02T03:04:05.6789Z stdout F hello world\n", entry{at, Stdout, false, []byte("hello world")}},
		{"partial", "2026-01-02T03:04:05.6789Z stderr P hel", entry{at, Stderr, true, []byte("hel")}},
		{"more tags", "2026-01-02T03:04:05.6789Z stderr P:x:y hel", entry{at, Stderr, true, []byte("hel")}},
		{"empty", "2026-01-02T03:04:05.6789Z stdout F ", entry{at, Stdout, false, []byte{}}},
		{"spaces stay", "2026-01-02T03:04:05.6789Z stdout F  a  ", entry{at, Stdout, false, []byte(" a  ")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseEntry([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseEntryRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", " ", "hello", "now stdout F x", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z stdin F x",
		"2026-01-02T03:04:05Z stdout", "2026-01-02T03:04:05Z stdout F", "2026-01-02T03:04:05Z stdout X x",
		"\x00\x00\x00",
	} {
		if e, err := parseEntry([]byte(in)); err == nil {
			t.Errorf("parseEntry(%q) = %+v, want an error", in, e)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add([]byte("2026-01-02T03:04:05.678912345Z stdout F hello\n"))
	f.Add([]byte("2026-01-02T03:04:05+07:00 stderr P:a x\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := parseEntry(in)
		if err != nil {
			return
		}
		if e.Stream != Stdout && e.Stream != Stderr {
			t.Errorf("stream %q", e.Stream)
		}
		if !bytes.HasSuffix(bytes.TrimSuffix(in, []byte{'\n'}), e.Text) {
			t.Errorf("text %q is not the end of %q", e.Text, in)
		}
	})
}

// log returns entries for the given pieces: "o" or "e" for the stream, "P" or "F", text.
func log(pieces ...string) string {
	var b strings.Builder
	for i, p := range pieces {
		stream := map[byte]string{'o': Stdout, 'e': Stderr}[p[0]]
		fmt.Fprintf(&b, "2026-01-02T03:04:%02d.%09dZ %s %c %s\n", i/1000000, i%1000000, stream, p[1], p[2:])
	}
	return b.String()
}

// FuzzPrinter holds that however the bytes of a log are cut, the same comes out.
func FuzzPrinter(f *testing.F) {
	f.Add([]byte(log("oFa", "oPb", "eFc", "oFd")), uint8(3))
	f.Add([]byte("torn\n"+log("eP", "eF")), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		render := func(step int) string {
			var out bytes.Buffer
			p := newPrinter(Sinks{Stdout: &out, Stderr: &out}, Options{})
			for rest := in; len(rest) > 0; {
				n := min(step, len(rest))
				if _, err := p.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if err := p.flush(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		if whole, cut := render(len(in)+1), render(int(step)+1); whole != cut {
			t.Errorf("whole %q, in pieces of %d %q", whole, int(step)+1, cut)
		}
	})
}
