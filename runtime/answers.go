package runtime

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/runtime/probe"
)

// explain adds to the conditions what the probes last said of the containers that are not
// ready, for the kubelet's messages name the containers alone.
func (v podView) explain(conditions []v1.PodCondition) {
	said := v.answers()
	for i := range conditions {
		switch c := &conditions[i]; {
		case said == "":
		case c.Reason == "ContainersNotReady":
			c.Message += "; " + said
		case c.Reason == "PodFailed" && c.Type == v1.ContainersReady:
			c.Message = said
		}
	}
}

// answers tells what the probes last said of containers that are not ready, or of the
// instance that was killed for it.
func (v podView) answers() string {
	var all []string
	for _, def := range podspec.Containers(v.pod) {
		c := v.containers[def.Name]
		p, asked := v.probes[c.ID]
		if asked && p.Ready {
			continue
		}
		said := answersOf(p)
		if len(said) == 0 && v.killed[c.ID] != "" {
			said = append(said, v.killed[c.ID])
		}
		if len(said) == 0 && c.Last != nil && c.State != engine.StateExited && v.killed[c.Last.ContainerID] != "" {
			said = append(said, v.killed[c.Last.ContainerID])
		}
		for _, text := range said {
			all = append(all, fmt.Sprintf("container %q: %s", def.Name, text))
		}
	}
	return strings.Join(all, "; ")
}

// answersOf are the last answers of the probes that did not succeed.
func answersOf(p probe.Status) []string {
	var said []string
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
		if a, ok := p.Answers[kind]; ok && a.Result != probe.Success {
			said = append(said, answer(kind, a))
		}
	}
	return said
}

func answer(kind probe.Kind, a probe.Answer) string {
	return fmt.Sprintf("%s probe: %s", kind, cmp.Or(strings.TrimSpace(a.Output), "failed"))
}

// noteKilled keeps what the probes said for which containers are about to be killed.
func (st *podState) noteKilled(known map[string]probe.Status) {
	st.memo.Lock()
	defer st.memo.Unlock()
	for id, p := range known {
		if p.Failed == "" {
			continue
		}
		if st.killed == nil {
			st.killed = map[string]string{}
		}
		st.killed[id] = answer(p.Failed, p.Answers[p.Failed])
	}
}

func (st *podState) killedBy() map[string]string {
	st.memo.Lock()
	defer st.memo.Unlock()
	return maps.Clone(st.killed)
}
