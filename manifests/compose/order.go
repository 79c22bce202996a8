package compose

import (
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// The annotations of runonce.
const (
	annotationDependsOn = "runonce/depends-on"
	annotationPublish   = "runonce/publish"
)

// conditions are those of runonce for those of compose, the weakest first.
var conditions = []struct{ compose, runonce string }{
	{types.ServiceConditionStarted, "running"},
	{types.ServiceConditionHealthy, "ready"},
	{types.ServiceConditionCompletedSuccessfully, "completed"},
}

// findWaitedFor finds the services that others want to have completed.
func (c *converter) findWaitedFor() {
	c.waitedFor = map[string]bool{}
	for _, s := range c.Services {
		for name, d := range s.DependsOn {
			if d.Condition == types.ServiceConditionCompletedSuccessfully {
				c.waitedFor[name] = true
			}
		}
	}
}

// dependsOn says on which other pods the pod depends: on those of all services on which one of its own does.
func (p *pod) dependsOn(u unit) {
	wanted := map[string]int{} // conditions by the names of pods
	for i := range u {
		s := &u[i]
		for _, name := range sorted(s.DependsOn) {
			condition := slices.IndexFunc(conditions, func(k struct{ compose, runonce string }) bool { return k.compose == s.DependsOn[name].Condition })
			if p.checkDependency(s, name) {
				wanted[p.pods[name]] = max(wanted[p.pods[name]], condition)
			}
		}
	}
	items := make([]string, 0, len(wanted))
	for _, name := range sorted(wanted) {
		item := name
		if condition := conditions[wanted[name]].runonce; condition != "ready" {
			item += ":" + condition
		}
		items = append(items, item)
	}
	if len(items) > 0 {
		p.annotations[annotationDependsOn] = strings.Join(items, ", ")
	}
}

// checkDependency says whether a pod can wait for a service, and warns about what is different.
func (p *pod) checkDependency(s *types.ServiceConfig, name string) bool {
	d, at := s.DependsOn[name], field(s, "depends_on", name)
	other, ok := p.Services[name]
	switch {
	case !ok: // not required, and not in the active profiles
		return false
	case p.pods[name] == p.name:
		if d.Condition != types.ServiceConditionStarted {
			p.warn(at, "they are containers of one pod, which start at the same time")
		}
		return false
	case other.GetScale() == 0:
		p.warn(at, "%s has no replicas: nothing waits for it", name)
		return false
	}
	if !d.Required {
		p.warn(at, "is required here: if %s fails, %s does not start", name, s.Name)
	}
	if _, line := p.sources.exact(at.at("restart")); line > 0 && d.Restart {
		p.warn(at.at("restart"), "%s is not restarted with %s", s.Name, name)
	}
	if d.Condition == types.ServiceConditionHealthy && !isChecked(other) {
		p.warn(at, "%s has no health check in these files: with --healthcheck, that of its image counts, and without it %s is ready once it runs", name, name)
	}
	return true
}
