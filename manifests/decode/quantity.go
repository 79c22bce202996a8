package decode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxQuantity bounds a quantity: 8Pi, more than any node has. Beyond 2^63, or 2^53 in
// thousandths, the arithmetic of Kubernetes' Quantity silently returns 0.
const maxQuantity = 1 << 53

// maxExponent bounds a decimal exponent. Kubernetes' own parser takes a second for 1e-9999999,
// and a comparison with 1e999999999 does not return.
const maxExponent = 99

// quantity checks a resource.Quantity before anything computes with it, and replaces one that
// is too large to count with.
func (w *walker) quantity(n *node) {
	s := n.text
	switch n.kind {
	case Number:
		s = n.literal
	case String:
	default:
		message, hint := w.wrongKind(n, String, "a quantity such as 500m or 128Mi")
		w.reject(n, message, hint)
		return
	}
	s = strings.TrimSpace(s)
	if len(s) > 2*maxExponent || exponent(s) > maxExponent {
		w.reject(n, fmt.Sprintf("quantity %s is out of range", shorten(n.text)), "")
		return
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		w.reject(n, fmt.Sprintf("%q is not a valid quantity", shorten(n.text)), quantityHint(n.text))
		return
	}
	if q.Cmp(*resource.NewQuantity(maxQuantity, resource.BinarySI)) > 0 {
		w.note(n.line, n.text+" is more than any node has and counts as 8Pi", "", SeverityWarning)
		n.kind, n.text = String, "8Pi"
	}
}

// isLarge says whether a text may be a quantity above maxQuantity, or one that is too large to
// parse. It is called for every scalar, so it is quick and says yes too often.
func isLarge(s string) bool {
	s = strings.TrimSpace(s)
	if s == "" || s[0] > '9' {
		return false
	}
	rest := strings.TrimLeft(s, "+-.0123456789")
	digits := len(s) - len(rest)
	return digits > 9 || digits > 0 && rest != "" && (strings.IndexByte("eEP", rest[0]) >= 0 || digits > 3 && strings.IndexByte("TG", rest[0]) >= 0)
}

// exponent returns the absolute value of the decimal exponent of a quantity. A suffix such as E
// or Ei is not an exponent.
func exponent(s string) int {
	i := strings.LastIndexAny(s, "eE")
	if i < 0 {
		return 0
	}
	e, err := strconv.Atoi(s[i+1:])
	if errors.Is(err, strconv.ErrRange) {
		return maxExponent + 1
	}
	return max(e, -e) // 0 after an error: a suffix
}
