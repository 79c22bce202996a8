package decode

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxQuantity bounds a quantity: 8 Pi, more than any node has. Beyond 2^63 the
// arithmetic of Kubernetes' Quantity silently answers 0, in thousandths beyond 2^53.
const maxQuantity = 1 << 53

// maxExponent bounds a decimal exponent. Kubernetes' own parser takes a second for
// 1e-9999999 and does not come back from comparing 1e999999999.
const maxExponent = 99

// quantity checks the text of a resource.Quantity before anything computes with it, and
// caps what is too large to be counted.
func (w *walker) quantity(n *node) {
	s := n.text
	switch n.kind {
	case Number:
		s = n.literal
	case String:
	default:
		message, hint := w.wrongKind(n, String, "a quantity such as 500m or 128Mi")
		w.fail(n.line, message, hint)
		return
	}
	s = strings.TrimSpace(s)
	if len(s) > 2*maxExponent || exponent(s) > maxExponent {
		w.fail(n.line, fmt.Sprintf("quantity %s is out of range", shorten(n.text)), "")
		return
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		w.fail(n.line, fmt.Sprintf("%q is not a valid quantity", shorten(n.text)), quantityHint(n.text))
		return
	}
	if q.Cmp(*resource.NewQuantity(maxQuantity, resource.BinarySI)) > 0 {
		w.note(n.line, n.text+" is more than any node has and counts as 8Pi", "", SeverityWarning)
		n.kind, n.text = String, "8Pi"
	}
}

// isLarge says whether a text may be a quantity that is more than maxQuantity, or too much
// to be parsed. It is asked of every scalar, so it is quick and often wrong.
func isLarge(s string) bool {
	s = strings.TrimSpace(s)
	if s == "" || s[0] > '9' {
		return false
	}
	rest := strings.TrimLeft(s, "+-.0123456789")
	digits := len(s) - len(rest)
	return digits > 9 || digits > 0 && rest != "" && (strings.IndexByte("eEP", rest[0]) >= 0 || digits > 3 && strings.IndexByte("TG", rest[0]) >= 0)
}

// exponent returns the size of the decimal exponent of a quantity, sign dropped. A
// suffix such as E or Ei is no exponent.
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
