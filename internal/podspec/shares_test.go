package podspec

import "testing"

func TestSharesToWeight(t *testing.T) {
	t.Parallel()
	for in, want := range map[uint64]uint64{0: 0, 1: 1, 2: 1, 102: 17, 512: 59, 1024: 100, 1536: 138, 262143: 10000, 262144: 10000, 1 << 40: 10000} {
		if got := SharesToWeight(in); got != want {
			t.Errorf("SharesToWeight(%d) = %d, want %d", in, got, want)
		}
	}
}

func TestWeightToSharesIsTheInverse(t *testing.T) {
	t.Parallel()
	if got := WeightToShares(100); got != 1024 {
		t.Errorf("WeightToShares(100) = %d, want 1024", got)
	}
	last := uint64(0)
	for w := uint64(1); w <= 10000; w++ {
		shares := WeightToShares(w)
		if shares < last {
			t.Fatalf("weight %d becomes %d shares, less than the weight before", w, shares)
		}
		last = shares
		if got := SharesToWeight(shares); got > w || (w < 10000 && SharesToWeight(shares+1) <= got && got < w) {
			t.Errorf("weight %d becomes %d shares, which become weight %d", w, shares, got)
		}
	}
}
