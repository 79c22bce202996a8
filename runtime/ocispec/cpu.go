package ocispec

import (
	"math"

	"github.com/runonce/runonce/internal/podspec"
)

const (
	// QuotaPeriod is the CFS period in microseconds (pkg/kubelet/cm/helpers_linux.go).
	QuotaPeriod = 100000
	// minQuota is the smallest quota that the kernel accepts, in microseconds.
	minQuota = 1000
)

// milliCPUToShares converts thousandths of a CPU to cpu.shares
// (cm.MilliCPUToShares): 1024 for a CPU, within podspec.MinShares and podspec.MaxShares.
func milliCPUToShares(milliCPU int64) uint64 {
	// Compare before the multiplication, which could overflow.
	if milliCPU >= podspec.MaxShares*1000/1024 {
		return podspec.MaxShares
	}
	return uint64(max(podspec.MinShares, milliCPU*1024/1000))
}

// milliCPUToQuota converts thousandths of a CPU to a CFS quota for QuotaPeriod, in
// microseconds (cm.MilliCPUToQuota). 0 means no limit.
func milliCPUToQuota(milliCPU int64) int64 {
	if milliCPU <= 0 {
		return 0
	}
	if milliCPU > math.MaxInt64/QuotaPeriod {
		return math.MaxInt64 / 1000
	}
	return max(minQuota, milliCPU*QuotaPeriod/1000)
}
