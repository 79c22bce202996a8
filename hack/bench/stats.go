package main

import "slices"

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

// values returns a figure of each run.
func values(s []sample, of func(sample) float64) []float64 {
	out := make([]float64, 0, len(s))
	for _, x := range s {
		out = append(out, of(x))
	}
	return out
}

// ratios returns the ratios of a figure to that of the floor in the same round.
func ratios(s, floor []sample, of func(sample) float64) []float64 {
	var out []float64
	for _, x := range s {
		i := slices.IndexFunc(floor, func(f sample) bool { return f.round == x.round })
		if i >= 0 && of(floor[i]) > 0 {
			out = append(out, of(x)/of(floor[i]))
		}
	}
	return out
}

func wall(s sample) float64     { return s.wall.Seconds() }
func cpu(s sample) float64      { return s.cpu.Seconds() }
func peak(s sample) float64     { return float64(s.peak) / (1 << 20) }
func residual(s sample) float64 { return float64(s.residual) / (1 << 20) }
func other(s sample) float64    { return s.other }
func down(s sample) float64     { return s.down.Seconds() }
