package hugepages_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/hugepages"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		root fstest.MapFS
		want []int64
	}{
		"none": {fstest.MapFS{}, nil},
		"sorted, without what is not a size": {fstest.MapFS{
			hugepages.File(2<<20, "nr"): {}, hugepages.File(64<<10, "nr"): {}, hugepages.File(1<<30, "nr"): {},
			hugepages.Dir + "/hugepages-x/nr": {}, hugepages.Dir + "/hugepages-0kB/nr": {},
		}, []int64{64 << 10, 2 << 20, 1 << 30}},
	} {
		got, err := hugepages.Sizes(tt.root)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
