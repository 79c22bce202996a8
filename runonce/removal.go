package runonce

// Removal says which of the pods that a run has started it removes when the results are known.
type Removal string

// The removals. RemoveNone is the default.
const (
	RemoveNone Removal = ""
	RemoveAll  Removal = "all"
	// RemoveFailed removes those that are not at their goal.
	RemoveFailed Removal = "failed"
	// KeepFailed removes all but those that have failed or timed out, which somebody wants to look into.
	KeepFailed Removal = "not-failed"
)

// Includes says whether a pod with this outcome, "" for none yet, is removed.
func (r Removal) Includes(o Outcome) bool {
	switch r {
	case RemoveAll:
		return true
	case RemoveFailed:
		return !o.AtGoal()
	case KeepFailed:
		return o != Failed && o != TimedOut
	case RemoveNone:
	}
	return false
}
