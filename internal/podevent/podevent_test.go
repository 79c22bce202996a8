package podevent

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// TestAggregate: events that say the same are one, which counts them; others are apart.
func TestAggregate(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	once := func(second int, reason, container, message string) Event {
		return At(at(second), Event{Type: "Warning", Reason: reason, Container: container, Message: message})
	}
	normal := once(3, "BackOff", "a", "again")
	normal.Type = "Normal"
	many := once(1, "BackOff", "a", "again")
	many.Count, many.LastSeen = 4, at(2)
	got := Aggregate([]Event{
		once(5, "BackOff", "a", "again"), once(4, "Failed", "a", "again"), many, once(6, "BackOff", "b", "again"),
		once(0, "BackOff", "a", "other"), normal, once(5, "BackOff", "a", "again"),
	})
	all := once(1, "BackOff", "a", "again")
	all.Count, all.LastSeen = 6, at(5)
	want := []Event{once(0, "BackOff", "a", "other"), normal, once(4, "Failed", "a", "again"), all, once(6, "BackOff", "b", "again")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := Warnings(got); len(got) != 4 {
		t.Errorf("%d warnings, want 4", len(got))
	}
}

// TestMessage: a message is text of a bounded length.
func TestMessage(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 1000)
	for _, c := range []struct{ message, want string }{
		{"text", "text"},
		{" text\n", "text"},
		{"a\xffb", "a\uFFFDb"},
		{long[:1024], long[:1024]},
		{"x" + long, "x" + strings.Repeat("ä", 510) + "..."},
		{long, strings.Repeat("ä", 510) + "..."},
	} {
		e := New("Normal", "R", "", c.message)
		if e.Message != c.want || !utf8.ValidString(e.Message) || e.Count != 1 || e.FirstSeen.IsZero() || e.FirstSeen != e.LastSeen {
			t.Errorf("%q: %+v", c.message, e)
		}
	}
}
