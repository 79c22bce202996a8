// Package quantity counts with Kubernetes quantities of any size: sums neither overflow nor
// take all memory there is.
package quantity

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Countable says whether arithmetic on the quantity is cheap.
func Countable(q resource.Quantity) bool {
	if _, ok := q.AsInt64(); ok {
		return true
	}
	var buf [32]byte
	mantissa, exponent := q.AsCanonicalBytes(buf[:0])
	return exponent <= 18 && len(mantissa)+int(exponent) <= 20
}

// Bound returns the quantity, or the largest int64 where it is not Countable.
func Bound(q resource.Quantity) resource.Quantity {
	switch {
	case Countable(q):
		return q
	case q.Sign() < 0:
		return resource.Quantity{}
	default:
		return *resource.NewQuantity(math.MaxInt64, q.Format)
	}
}

// Amount returns the quantity as the kubelet counts it: rounded up to whole units, or to
// thousandths for cpu. What is negative counts as nothing, what is beyond an int64 as the
// largest one.
func Amount(name v1.ResourceName, q resource.Quantity) int64 {
	if q.Sign() <= 0 {
		return 0
	}
	var buf [32]byte
	digits, exponent := q.AsCanonicalBytes(buf[:0])
	if name == v1.ResourceCPU {
		exponent += 3
	}
	return scaled(digits, int(exponent))
}

// scaled returns the decimal digits times ten to the exponent, rounded up; at most the
// largest int64.
func scaled(digits []byte, exponent int) int64 {
	rest := false
	for ; exponent < 0 && len(digits) > 0; exponent++ {
		rest = rest || digits[len(digits)-1] != '0'
		digits = digits[:len(digits)-1]
	}
	var n int64
	for _, d := range digits {
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64
		}
		n = n*10 + int64(d-'0')
	}
	for ; exponent > 0 && n > 0; exponent-- {
		if n > math.MaxInt64/10 {
			return math.MaxInt64
		}
		n *= 10
	}
	if rest {
		n = Add(n, 1)
	}
	return n
}

// Add returns a + b for numbers that are not negative, at most the largest int64.
func Add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Less returns the quantity less the others, never less than nothing.
func Less(q resource.Quantity, by ...resource.Quantity) resource.Quantity {
	q = Bound(q)
	format := q.Format
	for _, b := range by {
		q.Sub(Bound(b))
	}
	if q.Sign() < 0 {
		q.Set(0)
	}
	q.Format = format
	return q
}
