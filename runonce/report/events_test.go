package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/runonce/report"
)

// TestEventsTable: the table is that of "kubectl events".
func TestEventsTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	event := func(namespace, pod, reason string, count int, first, last time.Duration) report.Event {
		return report.Event{Namespace: namespace, Pod: pod, UID: pod, Event: podevent.Event{
			Type: "Normal", Reason: reason, Message: "it has\n" + reason, Count: count, FirstSeen: now.Add(-first), LastSeen: now.Add(-last),
		}}
	}
	text := func(write func(*strings.Builder) error) string {
		t.Helper()
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	check := func(got, want string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	all := []report.Event{event("default", "web", "Started", 1, time.Second, time.Second), event("default", "db", "BackOff", 3, 10*time.Minute, 5*time.Minute)}
	check(text(func(b *strings.Builder) error { return report.NewEvents(all).Table(b, now) }), strings.Join([]string{
		"LAST SEEN         TYPE    REASON   OBJECT   MESSAGE",
		"5m (x3 over 10m)  Normal  BackOff  Pod/db   it has BackOff",
		"1s                Normal  Started  Pod/web  it has Started", "",
	}, "\n"))
	check(text(func(b *strings.Builder) error {
		return report.NewEvents(append(all, event("prod", "web", "Killing", 1, 0, 0))).Table(b, now)
	}), strings.Join([]string{
		"NAMESPACE  LAST SEEN         TYPE    REASON   OBJECT   MESSAGE",
		"default    5m (x3 over 10m)  Normal  BackOff  Pod/db   it has BackOff",
		"default    1s                Normal  Started  Pod/web  it has Started",
		"prod       0s                Normal  Killing  Pod/web  it has Killing", "",
	}, "\n"))

	var log report.EventLog
	write := func(all ...report.Event) string {
		return text(func(b *strings.Builder) error { return log.Write(b, all, now) })
	}
	check(write(all[1]), "LAST SEEN         TYPE    REASON   OBJECT  MESSAGE\n5m (x3 over 10m)  Normal  BackOff  Pod/db  it has BackOff\n")
	check(write(all...), "1s                Normal  Started  Pod/web  it has Started\n")
	check(write(all...), "")
	all[1].Count = 4
	check(write(all...), "5m (x4 over 10m)  Normal  BackOff  Pod/db   it has BackOff\n")
}
