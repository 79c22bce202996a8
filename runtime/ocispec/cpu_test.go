package ocispec

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

func TestMilliCPUToShares(t *testing.T) {
	t.Parallel()
	for in, want := range map[int64]uint64{
		0: 2, 1: 2, 2: 2, 3: 3, 100: 102, 500: 512, 1000: 1024, 1500: 1536, 255999: 262142, 256000: 262144, 1 << 40: 262144,
		math.MaxInt64: 262144, -5: 2,
	} {
		if got := milliCPUToShares(in); got != want {
			t.Errorf("milliCPUToShares(%d) = %d, want %d", in, got, want)
		}
	}
}

func TestMilliCPUToQuota(t *testing.T) {
	t.Parallel()
	for in, want := range map[int64]int64{0: 0, 1: 1000, 9: 1000, 10: 1000, 11: 1100, 250: 25000, 1000: 100000, 64000: 6400000, -1: 0} {
		if got := milliCPUToQuota(in); got != want {
			t.Errorf("milliCPUToQuota(%d) = %d, want %d", in, got, want)
		}
	}
	if got := milliCPUToQuota(math.MaxInt64); got <= 0 {
		t.Errorf("milliCPUToQuota(max) = %d", got)
	}
}

func TestPageSize(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"hugepages-64Ki": "64KB", "hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-32Mi": "32MB"} {
		size, ok := podspec.PageSize(v1.ResourceName(in))
		if !ok || PageSizeName(size) != want {
			t.Errorf("%s: %d, %v, %s, want %s", in, size, ok, PageSizeName(size), want)
		}
	}
	for _, in := range []string{"cpu", "hugepages-", "hugepages-x", "hugepages-0", "hugepages--1Mi"} {
		if size, ok := podspec.PageSize(v1.ResourceName(in)); ok {
			t.Errorf("%s: a page size of %d", in, size)
		}
	}
}
