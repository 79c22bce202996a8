// Package podevent has the events of pods: what was decided about a pod, and what has happened to it, in the words
// of the kubelet and of the scheduler.
package podevent

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// maxMessage bounds a message, in bytes, as the API server does (NoteLengthLimit of pkg/apis/core/validation).
const maxMessage = 1024

// Event is something that has happened to a pod once or several times. Its JSON is part of reports.
type Event struct {
	Type      string    `json:"type"`                // Normal or Warning
	Reason    string    `json:"reason"`              // in one word, that of the kubelet if it has one
	Message   string    `json:"message"`             // for people
	Container string    `json:"container,omitempty"` // the container that it is about, if it is about one
	Source    string    `json:"source,omitempty"`    // the component of a cluster that has reported it
	Count     int       `json:"count"`               // how often it has happened
	FirstSeen time.Time `json:"firstSeen"`           // when it has happened first
	LastSeen  time.Time `json:"lastSeen"`            // when it has happened last
}

// New returns an event that happens now. eventType is v1.EventTypeNormal or v1.EventTypeWarning. A message that is too
// long is cut.
func New(eventType, reason, container, message string) Event {
	return At(time.Now(), Event{Type: eventType, Reason: reason, Container: container, Message: message})
}

// At returns an event that has happened once, at that time.
func At(t time.Time, e Event) Event {
	t = t.Round(0).UTC()
	e.Message, e.Count, e.FirstSeen, e.LastSeen = limit(e.Message), 1, t, t
	return e
}

// String returns the event in a line for people.
func (e Event) String() string {
	text := fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message)
	if e.Count > 1 {
		text += fmt.Sprintf(" (%d times)", e.Count)
	}
	return text
}

// limit returns the message as valid text of a bounded length.
func limit(message string) string {
	const cut = "..."
	message = strings.ToValidUTF8(strings.TrimSpace(message), "\uFFFD")
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage - len(cut)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + cut
}

// key is what events have in common that are one.
type key struct{ eventType, reason, message, container string }

// Aggregate makes events that say the same into one, with how often and when it has happened, as the API server has
// them. The result is in the order in which they have happened last.
func Aggregate(events []Event) []Event {
	all := make([]Event, 0, len(events))
	index := map[key]int{}
	for _, e := range events {
		k := key{e.Type, e.Reason, e.Message, e.Container}
		i, known := index[k]
		if !known {
			index[k] = len(all)
			all = append(all, e)
			continue
		}
		one := &all[i]
		one.Count = min(one.Count, math.MaxInt32) + min(e.Count, math.MaxInt32)
		if e.FirstSeen.Before(one.FirstSeen) {
			one.FirstSeen = e.FirstSeen
		}
		if e.LastSeen.After(one.LastSeen) {
			one.LastSeen = e.LastSeen
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return a.LastSeen.Compare(b.LastSeen) })
	return all
}

// Warnings returns the events that are warnings.
func Warnings(events []Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return e.Type != v1.EventTypeWarning })
}

// Reasons of events that are not the kubelet's.
const (
	// ReasonScheduled is the scheduler's for a pod that has a node.
	ReasonScheduled = "Scheduled"
	// ReasonPreempting is the kubelet's for a pod that it stops for another one.
	ReasonPreempting = "Preempting"
)
