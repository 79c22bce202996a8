package admit

import (
	"errors"
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// countable says whether arithmetic on the quantity is cheap: that on one like 1e999999999
// would take all memory.
func countable(q resource.Quantity) bool {
	if _, ok := q.AsInt64(); ok {
		return true
	}
	var buf [32]byte
	mantissa, exponent := q.AsCanonicalBytes(buf[:0])
	return exponent <= 18 && len(mantissa)+int(exponent) <= 20
}

// amount returns the quantity as the kubelet counts it: rounded up to whole units, or to
// thousandths for cpu. Negative ones count as 0, those beyond an int64 as the largest one.
func amount(name v1.ResourceName, q resource.Quantity) int64 {
	scale := resource.Scale(0)
	if name == v1.ResourceCPU {
		scale = resource.Milli
	}
	switch most := resource.NewScaledQuantity(math.MaxInt64, scale); {
	case q.Sign() <= 0:
		return 0
	case q.Cmp(*most) >= 0:
		return math.MaxInt64
	default:
		return q.ScaledValue(scale)
	}
}

// sum returns a + b for numbers that are not negative, at most the largest int64.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// subtract returns the quantity less the others, at least 0.
func subtract(q resource.Quantity, others ...resource.Quantity) resource.Quantity {
	q = q.DeepCopy()
	format := q.Format
	for _, other := range others {
		q.Sub(other)
	}
	if q.Sign() < 0 {
		q.Set(0)
	}
	q.Format = format
	return q
}

// ParseResources reads a list like cpu=2,memory=4Gi. An empty one is no resources.
func ParseResources(list string) (v1.ResourceList, error) {
	resources := v1.ResourceList{}
	if strings.TrimSpace(list) == "" {
		return resources, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("resource %q: must be NAME=QUANTITY", part)
		}
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			return nil, fmt.Errorf("resource name %q: %s", name, problems[0])
		}
		q, err := parseQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("resource %s=%s: %w", name, value, err)
		}
		if _, ok := resources[v1.ResourceName(name)]; ok {
			return nil, fmt.Errorf("resource %q: given twice", name)
		}
		resources[v1.ResourceName(name)] = q
	}
	return resources, nil
}

// parseQuantity reads a quantity that is neither negative nor too large to count with.
func parseQuantity(value string) (resource.Quantity, error) {
	const longest = 64 // a number of a million digits takes minutes to parse
	if len(value) > longest {
		return resource.Quantity{}, fmt.Errorf("a quantity has at most %d characters", longest)
	}
	q, err := resource.ParseQuantity(value)
	switch {
	case err != nil:
		return q, err
	case !countable(q):
		return q, errors.New("too large")
	case q.Sign() < 0:
		return q, errors.New("must not be negative")
	}
	return q, nil
}
