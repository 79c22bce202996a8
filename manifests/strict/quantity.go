package strict

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/fault"
)

// maxQuantity bounds a quantity: 8 Pi, more than any node has. Beyond 2^63 the
// arithmetic of Kubernetes' Quantity silently answers 0, in thousandths beyond 2^53.
const maxQuantity = 1 << 53

// maxExponent bounds a decimal exponent. Kubernetes' own parser takes a second for
// 1e-9999999 and does not come back from comparing 1e999999999.
const maxExponent = 99

// quantity checks the text of a resource.Quantity before anything computes with it, and
// caps what is too large to be counted.
func (c *checker) quantity(n *decode.Node, v reflect.Value) {
	if n.Kind != decode.Number && !c.want(n, decode.String, "a quantity such as 500m or 128Mi") {
		return
	}
	s := strings.TrimSpace(n.Text)
	if len(s) > 2*maxExponent || exponent(s) > maxExponent {
		c.fail(n.Line, fmt.Sprintf("quantity %s is out of range", shorten(n.Raw)), "")
		return
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		c.fail(n.Line, fmt.Sprintf("%q is no quantity", shorten(n.Raw)), quantityHint(n))
		return
	}
	if most := *resource.NewQuantity(maxQuantity, resource.BinarySI); q.Cmp(most) > 0 {
		c.fail(n.Line, n.Raw+" is more than any node has; it counts as 8Pi", "")
		c.faults[len(c.faults)-1].Severity = fault.Warning
		q = most
	}
	v.Set(reflect.ValueOf(q))
}

// exponent returns the size of the decimal exponent of a quantity, sign dropped. A
// suffix such as E or Ei is no exponent.
func exponent(s string) int {
	i := strings.LastIndexAny(s, "eE")
	if i < 0 {
		return 0
	}
	digits := strings.TrimLeft(s[i+1:], "+-")
	digits = strings.TrimLeft(digits, "0")
	if len(digits) > 3 {
		return maxExponent + 1
	}
	e, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return e
}
