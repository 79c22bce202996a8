package cputime

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	forks := []fork{
		{parent: 1, task: 10, process: 10}, // a program
		{parent: 1, task: 20, process: 20}, // somebody else's
		{parent: 10, task: 11, process: 10},
		{parent: 10, task: 12, process: 12}, // its child, which outlives it
		{parent: 12, task: 13, process: 13},
		{parent: 12, task: 14, process: 12},
		{parent: 20, task: 21, process: 21},
	}
	exits := []exit{
		{11, "worker", 2}, {13, "runtime", 3}, {14, "shim", 100}, {21, "other", 50}, {20, "other", 50}, {10, "client", 1},
	}
	alive := []living{{12, "shim", 110}, {5, "unrelated", 7}}
	want := []Usage{{"shim", 110}, {"client", 3}, {"runtime", 3}}
	got := split([]int{10}, forks, exits, alive)
	slices.SortStableFunc(got, func(a, b Usage) int {
		if a.CPU != b.CPU {
			return int(b.CPU - a.CPU)
		}
		return len(a.Name) - len(b.Name)
	})
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: threads count for their process, and those of a living process once", got, want)
	}
}

func TestParseFork(t *testing.T) {
	t.Parallel()
	event := func(what uint32) []byte {
		data := make([]byte, connectorSize)
		for _, word := range []uint32{what, 0, 0, 0, 101, 100, 203, 202} {
			data = binary.NativeEndian.AppendUint32(data, word)
		}
		return data
	}
	if f, ok := parseFork(event(eventFork)); !ok || f != (fork{parent: 100, task: 203, process: 202}) {
		t.Errorf("got %v %v", f, ok)
	}
	if _, ok := parseFork(event(2)); ok {
		t.Error("an exec is taken for a fork")
	}
	if _, ok := parseFork(event(eventFork)[:40]); ok {
		t.Error("a truncated event is accepted")
	}
}

func TestParseExit(t *testing.T) {
	t.Parallel()
	stats := make([]byte, 400)
	binary.NativeEndian.PutUint64(stats[statsCPU:], 1234567)
	copy(stats[statsName:], "runc:[2:INIT]")
	binary.NativeEndian.PutUint32(stats[statsPid:], 77)
	attribute := func(kind uint16, value []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(len(value)+4))
		return append(binary.NativeEndian.AppendUint16(b, kind), value...)
	}
	pid := attribute(1, []byte{77, 0, 0, 0})
	message := append([]byte{2, 1, 0, 0}, attribute(statsTypeTask, append(pid, attribute(statsTypeStats, stats)...))...)
	e, ok, err := parseExit(message)
	if err != nil || !ok || e != (exit{77, "runc:[2:INIT]", 1234567 * time.Nanosecond}) {
		t.Errorf("got %v %v %v", e, ok, err)
	}
	if _, ok, err := parseExit(message[:3]); ok || err != nil {
		t.Errorf("a short message: %v %v", ok, err)
	}
	group := append([]byte{2, 1, 0, 0}, attribute(5, attribute(statsTypeStats, stats))...)
	if _, ok, err := parseExit(group); ok || err != nil {
		t.Errorf("the sum of a process: %v %v, want it ignored", ok, err)
	}
}
