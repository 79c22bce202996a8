package manifests

import "errors"

// Validation is what the validate command says of an input, in the form that it prints
// as JSON or YAML.
type Validation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Faults     Faults `json:"faults"`
}

// NewValidation returns all that reading found: the warnings of the set and the faults of
// the error, in the order of files and lines. With strict, warnings are errors.
func NewValidation(set *Set, err error, strict bool) Validation {
	v := Validation{APIVersion: "runonce/v1", Kind: "Validation", Faults: Faults{}}
	v.Faults = append(v.Faults, set.Warnings...)
	if strict {
		for i := range v.Faults {
			v.Faults[i].Severity = SeverityError
		}
	}
	var faults Faults
	switch {
	case errors.As(err, &faults):
		v.Faults = append(v.Faults, faults...)
	case err != nil:
		v.Faults = append(v.Faults, Fault{Message: err.Error(), Severity: SeverityError})
	}
	v.Faults = v.Faults.Sort()
	return v
}

// Err returns the faults that stop a run, of type Faults, or nil.
func (v Validation) Err() error { return v.Faults.Of(SeverityError).Err() }
