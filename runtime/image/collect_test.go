package image

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestThresholds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		available         int64
		exceeded, reached bool
	}{{100, false, true}, {20, false, true}, {19, false, false}, {16, false, false}, {15, true, false}, {0, true, false}} {
		s := Space{Capacity: 100, Available: tt.available}
		if d := DefaultThresholds(); d.Exceeded(s) != tt.exceeded || d.Reached(s) != tt.reached {
			t.Errorf("%d%% used: exceeded %v, reached %v", s.Used(), d.Exceeded(s), d.Reached(s))
		}
	}
	if (Thresholds{High: 100}).Exceeded(Space{Capacity: 1}) || DefaultThresholds().Exceeded(Space{}) {
		t.Error("exceeded although it is off, or nothing is known")
	}
	if (Thresholds{}).Exceeded(Space{Capacity: 100}) {
		t.Error("the zero value removes images")
	}
	for _, bad := range []Thresholds{{}, {High: 101}, {High: -1, Low: -1}, {High: 80, Low: 85}, {High: 80, Low: -1}, {High: 80, MinAge: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if err := DefaultThresholds().Validate(); err != nil {
		t.Error(err)
	}
}

func TestRemovable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	all := []Stored{
		{Ref: "just used", Since: ago(9 * time.Hour), LastUse: ago(time.Minute)},
		{Ref: "just pulled", Since: ago(time.Minute)},
		{Ref: "used lately", Since: ago(9 * time.Hour), LastUse: ago(time.Hour)},
		{Ref: "kept", Kept: true, Since: ago(9 * time.Hour)},
		{Ref: "never used", Since: ago(8 * time.Hour)},
		{Ref: "pulled again", Since: ago(3 * time.Hour), LastUse: ago(9 * time.Hour)},
		{Ref: "b, at the same time", Since: ago(8 * time.Hour)},
	}
	want := []string{"b, at the same time", "never used", "pulled again", "used lately"}
	if diff := cmp.Diff(want, DefaultThresholds().Removable(all, now)); diff != "" {
		t.Error(diff)
	}
	if got := (Thresholds{}).Removable(all, now); len(got) != len(all)-1 {
		t.Errorf("without a minimum age: %q", got)
	}
}

// TestCollect: images go one by one, as long as it is necessary.
func TestCollect(t *testing.T) {
	t.Parallel()
	refs, full := []string{"a", "b", "c"}, errors.New("full")
	for _, tt := range []struct {
		name      string
		available []int64 // before each removal
		err       error
		want      []string
	}{
		{"enough", []int64{20}, nil, nil},
		{"after two", []int64{5, 5, 20}, nil, []string{"a", "b"}},
		{"none is left", []int64{5, 5, 5}, nil, []string{"a", "b", "c"}},
		{"cannot be removed", []int64{5}, full, nil},
	} {
		var got []string
		next := func() (Space, error) {
			s := Space{Capacity: 100, Available: tt.available[0]}
			tt.available = tt.available[1:]
			return s, nil
		}
		removed, err := DefaultThresholds().Collect(refs, next, func(ref string) error { got = append(got, ref); return tt.err })
		if diff := cmp.Diff(tt.want, removed); diff != "" || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %s", tt.name, err, diff)
		}
	}
}
