package podspec

import "math"

// The bounds of cpu.shares (pkg/kubelet/cm/helpers_linux.go), and what the kernel gives a new cgroup.
const (
	MinShares     = 2
	MaxShares     = 262144
	DefaultShares = 1024
)

// SharesToWeight converts cpu.shares to the cpu.weight of cgroup v2 by the formula of the
// OCI runtimes (opencontainers/cgroups ConvertCPUSharesToCgroupV2Value), so that the
// default of 1024 shares becomes the default weight of 100. 0 stays 0: not set.
func SharesToWeight(shares uint64) uint64 {
	switch {
	case shares == 0:
		return 0
	case shares <= MinShares:
		return 1
	case shares >= MaxShares:
		return 10000
	}
	l := math.Log2(float64(shares))
	exponent := (l*l+125*l)/612.0 - 7.0/34.0
	return uint64(math.Ceil(math.Pow(10, exponent)))
}

// WeightToShares is the inverse of SharesToWeight: the most shares that become weight.
func WeightToShares(weight uint64) uint64 {
	switch {
	case weight <= 1:
		return MinShares
	case weight >= 10000:
		return MaxShares
	}
	c := 612 * (math.Log10(float64(weight)) + 7.0/34.0)
	l := (math.Sqrt(125*125+4*c) - 125) / 2
	// Rounding may have moved the power slightly below the whole number.
	return uint64(math.Pow(2, l) * (1 + 1e-12))
}
