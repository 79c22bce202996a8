package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/image"
)

// makeRoom removes unused images before one is pulled or imported, if their file system is too full. With full it
// removes all of them, as a kubelet does that evicts. It says whether it has removed any.
func (t *nodeTarget) makeRoom(ctx context.Context, full bool) bool {
	limits := t.images.collect
	if limits.Off() || t.readOnly {
		return false
	}
	t.collecting.Lock() // who waits may find that there is room
	defer t.collecting.Unlock()
	space, err := t.engine.ImageSpace(ctx)
	if err == nil && (full || limits.Exceeded(space)) {
		if full {
			limits.Low = 0
		}
		var removed []string
		if removed, err = t.collectImages(ctx, limits, false); len(removed) > 0 {
			t.println(fmt.Sprintf("removed unused images, because %d%% of their file system are used: %s", space.Used(), strings.Join(removed, ", ")))
			return true
		}
	}
	if err != nil {
		t.log.Warn("could not make room for images", "error", err)
	}
	return false
}

// collectImages removes unused images, those from archives only with all, until the low threshold is reached, and returns
// them. Meanwhile no other run plans to use them.
func (t *nodeTarget) collectImages(ctx context.Context, limits image.Thresholds, all bool) (removed []string, err error) {
	turn := t.records.NewRun()
	if err := t.enter(ctx, turn); err != nil {
		return nil, err
	}
	defer func() { t.warn(turn.Close()) }()
	images, err := t.usedImages(ctx)
	if err != nil {
		return nil, err
	}
	if wanted := t.wanted.Load(); wanted != nil {
		addUsers(images, *wanted)
	}
	space := func() (image.Space, error) { return t.engine.ImageSpace(ctx) }
	return limits.Collect(limits.Removable(stored(images, all), time.Now()), space, func(ref string) error {
		_, err := t.engine.RemoveImages(ctx, []string{ref})
		return err
	})
}

// pruneImages does so on demand, and prints what it has removed and how full the file system is then.
func (t *nodeTarget) pruneImages(ctx context.Context, limits image.Thresholds, all bool) error {
	if err := t.connectToChange(ctx, "no image can be removed"); err != nil {
		return err
	}
	space, err := t.engine.ImageSpace(ctx)
	if err != nil {
		return unusable(err)
	}
	var removed []string
	if limits.Exceeded(space) {
		end := t.display.Wait("removing images")
		removed, err = t.collectImages(ctx, limits, all)
		end()
	}
	var out strings.Builder
	for _, ref := range removed {
		fmt.Fprintf(&out, "%s removed\n", ref)
	}
	if err == nil {
		space, err = t.engine.ImageSpace(ctx)
	}
	if err != nil {
		return unusable(err)
	}
	fmt.Fprintf(&out, "%d%% used\n", space.Used())
	if _, err := fmt.Fprint(t.io.Stdout, out.String()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// stored says which images may be removed, those from archives only with all.
func stored(images []backend.Image, all bool) []image.Stored {
	out := make([]image.Stored, 0, len(images))
	removable := unused(images, all)
	for _, i := range images {
		out = append(out, image.Stored{Ref: i.Ref, Kept: !slices.Contains(removable, i.Ref), Since: i.Since, LastUse: i.LastUse})
	}
	return out
}

// want says for which pods images are kept although no record has them.
func (t *nodeTarget) want(pods []*v1.Pod) { t.wanted.Store(&pods) }
