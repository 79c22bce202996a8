package quantity

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Parse reads a list like cpu=2,memory=4Gi. An empty one is no resources.
func Parse(list string) (v1.ResourceList, error) {
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
		if faults := validation.IsQualifiedName(name); len(faults) > 0 {
			return nil, fmt.Errorf("resource name %q: %s", name, faults[0])
		}
		q, err := parse(value)
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

// parse reads a quantity that is neither negative nor too large to count with.
func parse(value string) (resource.Quantity, error) {
	const longest = 64 // a number of a million digits takes minutes to parse
	if len(value) > longest {
		return resource.Quantity{}, fmt.Errorf("a quantity has at most %d characters", longest)
	}
	q, err := resource.ParseQuantity(value)
	switch {
	case err != nil:
		return q, err
	case !Countable(q):
		return q, errors.New("too large")
	case q.Sign() < 0:
		return q, errors.New("must not be negative")
	}
	return q, nil
}
