package image

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Space is that of a file system, in bytes.
type Space struct{ Capacity, Available int64 }

// Used returns how many percent of it are used, as the kubelet counts them.
func (s Space) Used() int {
	if s.Capacity <= 0 {
		return 0
	}
	return 100 - int(float64(s.Available)*100/float64(s.Capacity))
}

// Thresholds say when unused images are removed, with the names and the meaning of the kubelet's configuration. The zero
// value removes none.
type Thresholds struct {
	High, Low int           // percent used: from High on, until Low is reached
	MinAge    time.Duration // that an image must have
}

// DefaultThresholds are the kubelet's (pkg/kubelet/apis/config/v1beta1).
func DefaultThresholds() Thresholds { return Thresholds{High: 85, Low: 80, MinAge: 2 * time.Minute} }

// Validate returns what is wrong with the thresholds (pkg/kubelet/apis/config/validation).
func (t Thresholds) Validate() error {
	switch {
	case t.High < 1 || t.High > 100:
		return fmt.Errorf("the high threshold %d must be between 1 and 100", t.High)
	case t.Low < 0 || t.Low > 100:
		return fmt.Errorf("the low threshold %d must be between 0 and 100", t.Low)
	case t.Low > t.High:
		return fmt.Errorf("the low threshold %d must not be above the high one, %d", t.Low, t.High)
	case t.MinAge < 0:
		return fmt.Errorf("the minimum age %s must not be negative", t.MinAge)
	}
	return nil
}

// Off says that no image is ever removed.
func (t Thresholds) Off() bool { return t.High == 100 || t.High == 0 }

// Exceeded says that images have to be removed.
func (t Thresholds) Exceeded(s Space) bool { return !t.Off() && s.Used() >= t.High }

// Reached says that enough were removed.
func (t Thresholds) Reached(s Space) bool { return s.Used() <= t.Low }

// Stored is an image of the store.
type Stored struct {
	Ref     string
	Kept    bool      // it is used, pinned or another program's
	Since   time.Time // it was pulled or imported
	LastUse time.Time // by a pod, zero if that is not known
}

// Removable returns the images that may be removed, those that were not used for the longest time first
// (pkg/kubelet/images/image_gc_manager.go, freeSpace).
func (t Thresholds) Removable(all []Stored, now time.Time) []string {
	lastUse := func(i Stored) time.Time {
		if i.LastUse.After(i.Since) {
			return i.LastUse
		}
		return i.Since
	}
	all = slices.DeleteFunc(slices.Clone(all), func(i Stored) bool { return i.Kept || now.Sub(lastUse(i)) < t.MinAge })
	slices.SortStableFunc(all, func(a, b Stored) int {
		return cmp.Or(lastUse(a).Compare(lastUse(b)), a.Since.Compare(b.Since), cmp.Compare(a.Ref, b.Ref))
	})
	refs := make([]string, 0, len(all))
	for _, i := range all {
		refs = append(refs, i.Ref)
	}
	return refs
}

// Collect removes images until the low threshold is reached or none is left, and returns those. How much each one
// frees is not known before: they share layers, and their sizes are those of compressed layers.
func (t Thresholds) Collect(refs []string, space func() (Space, error), remove func(ref string) error) (removed []string, err error) {
	for _, ref := range refs {
		now, err := space()
		if err != nil || t.Reached(now) {
			return removed, err
		}
		if err := remove(ref); err != nil {
			return removed, err
		}
		removed = append(removed, ref)
	}
	return removed, nil
}
