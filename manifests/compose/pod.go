package compose

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// defaultGracePeriod is how long docker waits before it kills a container.
const defaultGracePeriod = 10 * time.Second

// pod is a pod that is made from the services of a unit.
type pod struct {
	*converter
	name        string
	labels      map[string]string
	annotations map[string]string
	spec        v1.PodSpec
}

// pod converts the services of a unit to the containers of a pod.
func (c *converter) pod(u unit) *pod {
	name := c.pods[u.owner().Name]
	no := false
	p := &pod{converter: c, name: name, labels: map[string]string{"app": name}, annotations: map[string]string{}}
	// Docker sets no variables about other containers, and confines all that are not privileged.
	p.spec.EnableServiceLinks = &no
	p.spec.SecurityContext = &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}}
	for i := range u {
		s := &u[i]
		p.checkAttributes(s)
		p.initContainers(s)
		container := p.container(c.names[s.Name], field(s), &s.ContainerSpec)
		p.workloadSpec(s, &container)
		p.spec.Containers = append(p.spec.Containers, container)
		p.network(s, i == 0)
		p.namespaces(s)
		p.labelled(s)
		p.gracePeriod(s)
	}
	p.publish(u)
	p.dependsOn(u)
	return p
}

// workloadSpec sets what services have and the containers that run before them have not.
func (p *pod) workloadSpec(s *types.ServiceConfig, container *v1.Container) {
	container.Stdin, container.TTY = s.StdinOpen, s.Tty
	p.probes(s, container)
	p.hooks(s, container)
	p.ports(s, container)
}

// initContainers converts the containers that run before that of the service.
func (p *pod) initContainers(s *types.ServiceConfig) {
	for i := range s.PreStart {
		hook := s.PreStart[i].ContainerSpec
		hook.Volumes = slices.Concat(s.Volumes, hook.Volumes) // they have those of the service as well
		name := p.names[s.Name] + "-pre-start-" + strconv.Itoa(i)
		p.spec.InitContainers = append(p.spec.InitContainers, p.container(name, field(s, "pre_start"), &hook))
		if !s.PreStart[i].PerReplica && s.GetScale() > 1 {
			p.warn(field(s, "pre_start"), "runs before each replica, not once for all")
		}
	}
}

// labelled turns labels into annotations: those of docker may have any value.
func (p *pod) labelled(s *types.ServiceConfig) {
	all := maps.Clone(map[string]string(s.Labels))
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, s.Annotations)
	for _, key := range sorted(all) {
		if bad := validation.IsQualifiedName(strings.ToLower(key)); len(bad) > 0 {
			section := "labels"
			if _, ok := s.Annotations[key]; ok {
				section = "annotations"
			}
			p.warn(field(s, section, key), "cannot be the name of an annotation: it is left out")
			continue
		}
		p.annotations[key] = all[key]
	}
}

// gracePeriod sets that of the pod to the longest of its services.
func (p *pod) gracePeriod(s *types.ServiceConfig) {
	wanted := defaultGracePeriod
	if s.StopGracePeriod != nil {
		wanted = time.Duration(*s.StopGracePeriod)
	}
	seconds := p.seconds(field(s, "stop_grace_period"), wanted)
	if p.spec.TerminationGracePeriodSeconds == nil || *p.spec.TerminationGracePeriodSeconds < seconds {
		p.spec.TerminationGracePeriodSeconds = &seconds
	}
}

// seconds returns a time in whole seconds.
func (c *converter) seconds(at place, d time.Duration) int64 {
	whole := (d + time.Second - 1) / time.Second
	if d%time.Second != 0 {
		c.warn(at, "%s is rounded up to %d seconds", d, whole)
	}
	return int64(whole)
}

// volume returns the name of a volume of the pod. Containers share those of the same source; those in memory have one each.
func (p *pod) volume(name string, source v1.VolumeSource) string {
	taken := map[string]bool{}
	for _, v := range p.spec.Volumes {
		if source.EmptyDir == nil && sameSource(v.VolumeSource, source) {
			return v.Name
		}
		taken[v.Name] = true
	}
	name = objectName(name)
	unique := name
	for i := 2; taken[unique]; i++ {
		unique = name + "-" + strconv.Itoa(i)
	}
	p.spec.Volumes = append(p.spec.Volumes, v1.Volume{Name: unique, VolumeSource: source})
	return unique
}
