package podspec_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podspec"
)

func TestSizes(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		root fstest.MapFS
		want []int64
	}{
		"none": {fstest.MapFS{}, nil},
		"sorted, without what is not a size": {fstest.MapFS{
			podspec.HugePagesFile(2<<20, "nr"): {}, podspec.HugePagesFile(64<<10, "nr"): {}, podspec.HugePagesFile(1<<30, "nr"): {},
			podspec.HugePagesDir + "/hugepages-x/nr": {}, podspec.HugePagesDir + "/hugepages-0kB/nr": {},
		}, []int64{64 << 10, 2 << 20, 1 << 30}},
	} {
		got, err := podspec.HugePageSizes(tt.root)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
