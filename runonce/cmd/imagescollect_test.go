package cmd_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/runtime/engine"
)

// TestCollectImages: a run that pulls makes room for that if the disk is too full, or was found to be, and in no other
// case. What a pod uses, also one that has ended or that this run is about to start, stays.
func TestCollectImages(t *testing.T) {
	t.Parallel()
	const far, old, older, planned = "localhost/far:1", "localhost/old:1", "localhost/older:1", "localhost/planned:1"
	full := fmt.Errorf("writing a layer: %w", syscall.ENOSPC)
	for _, tt := range []struct {
		name      string
		available []int64 // each time that it is asked for
		pull      error
		args      string
		image     string
		removed   []string
	}{
		{"enough", []int64{50}, nil, "", far, nil},
		{"nothing to pull", nil, nil, "", boxRef, nil},
		{"too full", []int64{15, 15, 15}, nil, "", far, []string{old, older}},
		{"one is enough", []int64{15, 15, 20}, nil, "", far, []string{old}},
		{"off", nil, nil, "--image-gc-high-threshold 100", far, nil},
		{"other thresholds", []int64{50, 50, 60}, nil, "--image-gc-high-threshold 50 --image-gc-low-threshold 40", far, []string{old}},
		{"full", []int64{50, 50, 50, 50}, full, "", far, []string{old, older}},
		{"another error", []int64{50, 50}, syscall.ECONNRESET, "", far, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMemory(t)
			m.engine.Store = map[string]engine.Image{}
			for _, ref := range []string{boxRef, old, older, planned} {
				m.engine.Store[ref] = engine.Image{Ref: ref, Digest: digestOf(ref), Size: 1, Entrypoint: []string{"/bin/box"}}
			}
			m.far(far, digestOf("far"))
			if tt.pull != nil {
				m.engine.PullErrors = map[string][]error{far: {tt.pull}}
			}
			if got := invoke(t, m, "run", manifest(t, "ended", "Never", `[exit, "0"]`), "--until", "completed", "--node", nodeFile()); got.code != 0 {
				t.Fatalf("%+v", got)
			}
			m.available = func() int64 {
				if len(tt.available) == 0 {
					t.Error("the space was asked for once more")
					return 0
				}
				now := tt.available[0]
				tt.available = tt.available[1:]
				return now
			}
			args := append([]string{
				"run", imagePod(t, "far", [4]string{tt.image, tt.image, tt.image, tt.image}), imagePod(t, "planned", [4]string{planned, planned, planned, planned}),
				"--node", nodeFile(), "--settle", "0", "--retry-delay", "1ms",
			}, strings.Fields(tt.args)...)
			before := slices.Sorted(maps.Keys(m.engine.Images()))
			got := invoke(t, m, args...)
			if got.code != 0 {
				t.Errorf("%+v", got)
			}
			removed := slices.DeleteFunc(before, func(ref string) bool { _, ok := m.engine.Images()[ref]; return ok })
			if diff := cmp.Diff(tt.removed, removed); diff != "" && len(tt.removed)+len(removed) > 0 {
				t.Errorf("%s\n%s", diff, got.stderr)
			}
			if said := strings.Contains(got.stderr, "removed unused images"); said != (len(tt.removed) > 0) {
				t.Errorf("stderr %s", got.stderr)
			}
		})
	}
}

// TestPruneUntil: with thresholds, images prune removes no more than necessary.
func TestPruneUntil(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args, want string
		available  []int64
		code       int
	}{
		{"--high 85 --low 80", "localhost/a:1 removed\n80% used\n", []int64{15, 15, 20, 20}, 0},
		{"--low 70", "localhost/a:1 removed\nlocalhost/b:1 removed\n75% used\n", []int64{15, 15, 15, 25}, 0},
		{"--high 90", "85% used\n", []int64{15, 15}, 0},
		{"--high 70", "the low threshold 80 must not be above the high one, 70", nil, 2},
		{"--high 170", "must be between 1 and 100", nil, 2},
	} {
		m := newMemory(t)
		m.engine.Store = map[string]engine.Image{"localhost/a:1": {Size: 1}, "localhost/b:1": {Size: 1}}
		m.available = func() int64 {
			now := tt.available[0]
			tt.available = tt.available[1:]
			return now
		}
		got := invoke(t, m, append([]string{"images", "prune"}, strings.Fields(tt.args)...)...)
		if got.code != tt.code || !strings.Contains(got.stdout+got.stderr, tt.want) || tt.code == 0 && got.stdout != tt.want {
			t.Errorf("%s: %+v", tt.args, got)
		}
	}
}
