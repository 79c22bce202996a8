package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

// Wait is for what a pod waits in a Queue.
type Wait struct {
	// Lacks names it in a word each: resources of the node, "host ports", "volumes".
	Lacks   []string
	Message string
	Place   int // in the queue, from 1
}

// Wait returns for what the pod waits. It is zero if the pod does not wait.
func (q *Queue) Wait(pod *v1.Pod) Wait {
	e := q.pods[pod.UID]
	if e == nil || e.holds {
		return Wait{}
	}
	return q.wait(e)
}

func (q *Queue) wait(e *entry) Wait {
	at, waits := slices.BinarySearchFunc(q.waiting, e, bySeat)
	if !waits {
		return Wait{}
	}
	w := Wait{Place: at + 1}
	l, a := &line{p: q.p, head: q.head}, q.p.allocated
	var texts []string
	lack := func(resource int, kept string) {
		w.Lacks = append(w.Lacks, string(a.names[resource]))
		texts = append(texts, fmt.Sprintf("%s: needs %s, %s of %s are free%s", a.names[resource], a.quantity(resource, e.requested(resource)),
			a.quantity(resource, max(0, l.free(resource, a.used))), a.quantity(resource, a.capacity[resource]), kept))
	}
	for _, r := range a.insufficient(e.requests) {
		lack(r.resource, "")
	}
	if ports := q.p.ports.conflicts(e.ports); len(ports) > 0 {
		w.Lacks, texts = append(w.Lacks, "host ports"), append(texts, "host ports"+describe(ports))
	}
	if users := q.p.claims.conflicts(e); len(users) > 0 {
		w.Lacks, texts = append(w.Lacks, "volumes"), append(texts, "volumes: "+messageOnePod)
	}
	if len(texts) == 0 && l.head != nil && l.head != e {
		for _, resource := range l.reserved(e) {
			lack(resource, " and kept for "+podspec.FullName(l.head.pod))
		}
	}
	if len(texts) == 0 {
		w.Lacks, texts = []string{"its turn"}, []string{"its turn"}
	}
	w.Message = "waits for " + strings.Join(texts, ", and for ")
	switch at {
	case 0:
		w.Message += "; it is the next one"
	case 1:
		w.Message += "; 1 pod is before it"
	default:
		w.Message += fmt.Sprintf("; %d pods are before it", at)
	}
	return w
}
