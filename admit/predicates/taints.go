package predicates

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
)

// tolerates says whether one of the tolerations bears the taint
// (v1.Toleration.ToleratesTaint, which would bring its own logger).
func tolerates(tolerations []v1.Toleration, taint v1.Taint) bool {
	for _, t := range tolerations {
		if (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) && valueTolerates(t, taint.Value) {
			return true
		}
	}
	return false
}

func valueTolerates(t v1.Toleration, value string) bool {
	switch t.Operator {
	case "", v1.TolerationOpEqual:
		return t.Value == value
	case v1.TolerationOpExists:
		return true
	case v1.TolerationOpLt, v1.TolerationOpGt:
		limit, err := strconv.ParseInt(t.Value, 10, 64)
		if err != nil {
			return false
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		if t.Operator == v1.TolerationOpLt {
			return n < limit
		}
		return n > limit
	default:
		return false
	}
}
