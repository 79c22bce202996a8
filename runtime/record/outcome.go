package record

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Outcome is what the last run has decided about a pod, in its words.
type Outcome struct {
	Outcome   string    `json:"outcome"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	DecidedAt time.Time `json:"decidedAt"`
}

// Conclude records the outcome of a pod, nil for none yet. It does nothing about a pod that is not
// on the machine, or that another process has stopped.
func (s *Store) Conclude(uid types.UID, o *Outcome) error {
	_, err := s.Update(uid, func(p *Pod) error {
		if !p.Removed && !p.Started.IsZero() && !s.lost(p) {
			p.Outcome = o
		}
		return nil
	})
	return err
}

// IsWatched reports whether a run that has admitted the pod goes on, and so restarts its containers.
func (s *Store) IsWatched(p *Pod) bool {
	for name, o := range p.Owners {
		if !o.Lost && s.lives(name) {
			return true
		}
	}
	return false
}

// PreemptedBy returns the pod for which another process has stopped this one, nil if it was stopped for another reason,
// or not at all, or if a run that goes on has admitted it since.
func (s *Store) PreemptedBy(p *Pod) *v1.Pod {
	if s.IsWatched(p) {
		return nil
	}
	for _, o := range p.Owners {
		if by := (&LostError{By: o.By}).PreemptedBy(); o.Lost && by != nil {
			return by
		}
	}
	return nil
}
