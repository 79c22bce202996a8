package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// script answers exec probes by their first word: from the second of the time of the test
// on that the list names, with this exit code.
type script struct {
	start time.Time
	codes map[string]map[int]int32
	mu    sync.Mutex
	asked []string
}

func (s *script) exec(_ context.Context, command []string) (int32, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, name := int(time.Since(s.start).Seconds()), command[0]
	s.asked = append(s.asked, fmt.Sprintf("%s@%d", name, now))
	code, since := int32(0), -1
	for from, c := range s.codes[name] {
		if from <= now && from > since {
			code, since = c, from
		}
	}
	if code < 0 {
		return 0, nil, errors.New("cannot ask")
	}
	return code, []byte(fmt.Sprint(code)), nil
}

func execProbe(name string, edit func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{name}}},
		PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
	}
	if edit != nil {
		edit(p)
	}
	return p
}

func TestWatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		c       v1.Container
		codes   map[string]map[int]int32
		seconds int
		want    []string // second, started, ready, failed: at each change
		asked   string
	}{
		{name: "no probes", want: []string{"0 started ready"}, seconds: 100},
		{
			name:    "ready at once",
			c:       v1.Container{ReadinessProbe: execProbe("r", nil)},
			want:    []string{"0 started", "0 started ready"},
			seconds: 25, asked: "r@0,r@10,r@20",
		},
		{
			name:    "ready after the initial delay",
			c:       v1.Container{ReadinessProbe: execProbe("r", func(p *v1.Probe) { p.InitialDelaySeconds = 7 })},
			want:    []string{"0 started", "7 started ready"},
			seconds: 8, asked: "r@7",
		},
		{
			name:    "ready by the success threshold",
			c:       v1.Container{ReadinessProbe: execProbe("r", func(p *v1.Probe) { p.SuccessThreshold = 3 })},
			want:    []string{"0 started", "20 started ready"},
			seconds: 25, asked: "r@0,r@10,r@20",
		},
		{
			name:    "no longer ready by the failure threshold, and again",
			c:       v1.Container{ReadinessProbe: execProbe("r", func(p *v1.Probe) { p.FailureThreshold = 2 })},
			codes:   map[string]map[int]int32{"r": {15: 1, 35: 0}},
			want:    []string{"0 started", "0 started ready", "30 started", "40 started ready"},
			seconds: 45, asked: "r@0,r@10,r@20,r@30,r@40",
		},
		{
			name:    "one failure is none",
			c:       v1.Container{LivenessProbe: execProbe("l", nil)},
			codes:   map[string]map[int]int32{"l": {15: 1, 35: 0, 45: 1, 65: 0}},
			want:    []string{"0 started ready"},
			seconds: 75, asked: "l@0,l@10,l@20,l@30,l@40,l@50,l@60,l@70",
		},
		{
			name:    "dead",
			c:       v1.Container{LivenessProbe: execProbe("l", nil), ReadinessProbe: execProbe("r", nil)},
			codes:   map[string]map[int]int32{"l": {5: 1}},
			want:    []string{"0 started", "0 started ready", "30 started liveness"},
			seconds: 100,
		},
		{
			name:    "what cannot be asked says nothing",
			c:       v1.Container{LivenessProbe: execProbe("l", func(p *v1.Probe) { p.FailureThreshold = 1 })},
			codes:   map[string]map[int]int32{"l": {5: -1, 15: 0}},
			want:    []string{"0 started ready"},
			seconds: 25, asked: "l@0,l@10,l@10,l@10,l@20",
		},
		{
			name: "others wait for startup",
			c: v1.Container{
				StartupProbe:   execProbe("s", func(p *v1.Probe) { p.PeriodSeconds, p.FailureThreshold = 2, 30 }),
				ReadinessProbe: execProbe("r", nil), LivenessProbe: execProbe("l", func(p *v1.Probe) { p.InitialDelaySeconds = 9 }),
			},
			codes:   map[string]map[int]int32{"s": {0: 1, 3: 0}},
			want:    []string{"0", "4 started", "4 started ready"},
			seconds: 10, asked: "s@0,s@2,s@4,r@4,l@9",
		},
		{
			name:    "ready when started",
			c:       v1.Container{StartupProbe: execProbe("s", nil)},
			want:    []string{"0", "0 started ready"},
			seconds: 50, asked: "s@0",
		},
		{
			name:    "never started",
			c:       v1.Container{StartupProbe: execProbe("s", nil), LivenessProbe: execProbe("l", nil)},
			codes:   map[string]map[int]int32{"s": {0: 1}},
			want:    []string{"0", "20 startup"},
			seconds: 50, asked: "s@0,s@10,s@20",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{start: time.Now(), codes: tt.codes}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(tt.seconds)*time.Second)
				defer cancel()
				var got []string
				last := "none"
				Watch(ctx, Target{Container: &tt.c, Exec: s.exec}, time.Now(), func(st Status) {
					if line := stateLine(st); line != last {
						got = append(got, strings.TrimSpace(fmt.Sprintf("%d%s", int(time.Since(s.start).Seconds()), line)))
						last = line
					}
				})
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				if asked := strings.Join(s.asked, ","); tt.asked != "" && asked != tt.asked {
					t.Errorf("asked %q, want %q", asked, tt.asked)
				}
			})
		})
	}
}

func stateLine(s Status) string {
	line := ""
	if s.Started {
		line += " started"
	}
	if s.Ready {
		line += " ready"
	}
	if s.Failed != "" {
		line += " " + string(s.Failed)
	}
	return line
}

func TestWatchReportsLastOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now(), codes: map[string]map[int]int32{"r": {0: 4, 15: 5}}}
		c := v1.Container{ReadinessProbe: execProbe("r", nil)}
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		var answers []Outcome
		Watch(ctx, Target{Container: &c, Exec: s.exec}, time.Now(), func(st Status) {
			answers = append(answers, st.Last[Readiness])
		})
		want := []Outcome{{}, {Failure, "4"}, {Failure, "5"}}
		if diff := cmp.Diff(want, answers); diff != "" {
			t.Error(diff)
		}
	})
}

// TestWatchAfterTheClockWasSetBack: the initial delay does not grow, and Once does not wait for one.
func TestWatchAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now()}
		c := v1.Container{ReadinessProbe: execProbe("r", func(p *v1.Probe) { p.InitialDelaySeconds = 7 })}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		later := time.Now().Add(time.Hour)
		Watch(ctx, Target{Container: &c, Exec: s.exec}, later, func(Status) {})
		if diff := cmp.Diff([]string{"r@7"}, s.asked); diff != "" {
			t.Error(diff)
		}
		if !Once(t.Context(), Target{Container: &c, Exec: s.exec}, later).Ready {
			t.Error("not ready")
		}
	})
}

// A container that has run for long is asked at once: its initial delay is over.
func TestWatchOfAnOldContainer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{start: time.Now()}
		c := v1.Container{ReadinessProbe: execProbe("r", func(p *v1.Probe) { p.InitialDelaySeconds = 100 })}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		Watch(ctx, Target{Container: &c, Exec: s.exec}, time.Now().Add(-time.Hour), func(Status) {})
		if diff := cmp.Diff([]string{"r@0"}, s.asked); diff != "" {
			t.Error(diff)
		}
	})
}
