package manifests

import (
	"errors"
	"fmt"

	"github.com/runonce/runonce/internal/podspec"
)

// Validation is the result of the validate command, in the form of its JSON and YAML output.
type Validation struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Problems   Diagnostics `json:"faults"`
	Error      string      `json:"error,omitempty"` // why the manifests were not read
	// Order has the pods that depend on others, in the order of the input.
	Order []Dependent `json:"order,omitempty"`
}

// Dependent is a pod that starts when others are there.
type Dependent struct {
	Namespace string               `json:"namespace"`
	Name      string               `json:"name"`
	DependsOn []podspec.Dependency `json:"dependsOn"`
}

// String says so in a line.
func (d Dependent) String() string {
	return fmt.Sprintf("%s/%s starts after %s", d.Namespace, d.Name, podspec.Written(d.DependsOn, d.Namespace))
}

// NewValidation returns the warnings of the set and the problems of the error, in the order of
// files and lines. If strict, warnings are errors.
func NewValidation(set *Set, err error, strict bool) Validation {
	v := Validation{APIVersion: "runonce/v1", Kind: "Validation", Problems: Diagnostics{}}
	v.Problems = append(v.Problems, set.Warnings...)
	if strict {
		for i := range v.Problems {
			v.Problems[i].Severity = SeverityError
		}
	}
	var problems Diagnostics
	switch {
	case errors.As(err, &problems):
		v.Problems = append(v.Problems, problems...)
	case err != nil:
		v.Problems = append(v.Problems, Diagnostic{Message: err.Error(), Severity: SeverityError})
	}
	v.Problems = v.Problems.Sort()
	for _, pod := range set.Pods {
		if on := set.dependencies[podspec.NameOf(pod)]; len(on) > 0 {
			v.Order = append(v.Order, Dependent{pod.Namespace, pod.Name, on})
		}
	}
	return v
}

// Err returns the problems that prevent a run, of type Diagnostics, or nil.
func (v Validation) Err() error { return v.Problems.Of(SeverityError).Err() }
