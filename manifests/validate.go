package manifests

import "errors"

// Validation is the result of the validate command, in the form of its JSON and YAML output.
type Validation struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Problems   Diagnostics `json:"faults"`
	Error      string      `json:"error,omitempty"` // why the manifests were not read
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
	return v
}

// Err returns the problems that prevent a run, of type Diagnostics, or nil.
func (v Validation) Err() error { return v.Problems.Of(SeverityError).Err() }
