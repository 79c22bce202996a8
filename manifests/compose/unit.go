package compose

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// unit is the services that become the containers of one pod: one, or several that share namespaces. The first one owns them.
type unit []types.ServiceConfig

func (u unit) owner() *types.ServiceConfig { return &u[0] }

// shares returns the services whose namespaces a service uses.
func shares(s types.ServiceConfig) (names []string) {
	for _, mode := range []string{s.NetworkMode, s.Ipc, s.Pid} {
		if name, ok := strings.CutPrefix(mode, types.ServicePrefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// units returns the services by the pods that they become, in the order of the owners' names.
func (c *converter) units() []unit {
	owner := map[string]string{}
	var find func(name string) string
	find = func(name string) string {
		if owner[name] == "" || owner[name] == name {
			return name
		}
		return find(owner[name])
	}
	for _, name := range sorted(c.Services) {
		for _, other := range shares(c.Services[name]) {
			if _, ok := c.Services[other]; !ok {
				c.fail(place{"services", name}, "uses a namespace of service %q, which there is not", other)
				continue
			}
			if from, to := find(name), find(other); from != to {
				owner[from] = to
			}
		}
	}
	members := map[string]unit{}
	for _, name := range sorted(c.Services) {
		o := find(name)
		if name == o {
			members[o] = slices.Insert(members[o], 0, c.Services[name])
		} else {
			members[o] = append(members[o], c.Services[name])
		}
	}
	all := make([]unit, 0, len(members))
	for _, o := range sorted(members) {
		all = append(all, members[o])
	}
	c.setPods(all)
	return all
}

// setPods names the objects of services in the pod of another one like that pod.
func (c *converter) setPods(all []unit) {
	c.pods = map[string]string{}
	for _, u := range all {
		for _, s := range u {
			c.pods[s.Name] = c.names[u.owner().Name]
		}
	}
	c.aliases = c.findAliases()
}

// restart says when the container of a service is started again. Retries is how often, nil for as often as needed.
func (c *converter) restart(s *types.ServiceConfig) (policy v1.RestartPolicy, retries *int32) {
	condition, limit, _ := strings.Cut(s.Restart, ":")
	var attempts *uint64
	if n, err := strconv.ParseUint(limit, 10, 32); err == nil {
		attempts = &n
	}
	if d := s.Deploy; d != nil && d.RestartPolicy != nil {
		condition, attempts = d.RestartPolicy.Condition, d.RestartPolicy.MaxAttempts
		if condition == "" {
			condition = "any"
		}
		if d.RestartPolicy.Delay != nil || d.RestartPolicy.Window != nil {
			c.warn(field(s, "deploy", "restart_policy"), "delay and window have no effect: restarts are delayed as a kubelet does it")
		}
	}
	switch condition {
	case "on-failure":
		policy = v1.RestartPolicyOnFailure
	case types.RestartPolicyAlways, types.RestartPolicyUnlessStopped, "any":
		policy = v1.RestartPolicyAlways
	default:
		return v1.RestartPolicyNever, nil
	}
	if attempts != nil && *attempts > 0 {
		if policy == v1.RestartPolicyAlways {
			c.warn(field(s, "deploy", "restart_policy", "max_attempts"), "restarts have no limit of their own; see --max-restarts")
			return policy, nil
		}
		n := int32(min(*attempts, math.MaxInt32))
		retries = &n
	}
	if policy == v1.RestartPolicyAlways && c.waitedFor[s.Name] {
		c.warn(field(s, "restart"), "others wait until it has completed, so it is restarted only if it fails")
		policy = v1.RestartPolicyOnFailure
	}
	return policy, retries
}

// unit converts the services of a pod: the workload, and the Services that lead to it.
func (c *converter) unit(u unit) []runtime.Object {
	replicas := u.owner().GetScale()
	if replicas == 0 {
		return nil
	}
	for i := range u[1:] {
		if s := &u[i+1]; s.GetScale() != replicas {
			c.warn(field(s), "is in the pod of %s, of which there are %d", u.owner().Name, replicas)
		}
	}
	p := c.pod(u)
	policy, retries := c.restart(u.owner())
	p.spec.RestartPolicy = policy
	for i := range u[1:] {
		p.restartOwn(&u[i+1], &p.spec.Containers[i+1])
	}
	return append([]runtime.Object{c.workload(p, int32(min(replicas, math.MaxInt32)), retries)}, c.services(u, p)...)
}

// restartOwn gives a container the restart policy of its service, if the pod has another one.
func (p *pod) restartOwn(s *types.ServiceConfig, container *v1.Container) {
	policy, retries := p.restart(s)
	if retries != nil {
		p.warn(field(s, "restart"), "restarts of one container of a pod have no limit of their own")
	}
	if policy != p.spec.RestartPolicy {
		own := v1.ContainerRestartPolicy(policy)
		container.RestartPolicy = &own
	}
}

// workload returns the object that has the pod: the pod itself if that can say everything.
func (c *converter) workload(p *pod, replicas int32, retries *int32) runtime.Object {
	name := c.meta(p.name)
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.labels, Annotations: p.annotations}, Spec: p.spec}
	switch {
	case replicas == 1 && retries == nil:
		name.Labels, name.Annotations = p.labels, p.annotations
		return &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: name, Spec: p.spec}
	case p.spec.RestartPolicy == v1.RestartPolicyAlways:
		return &appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: name,
			Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: p.labels}, Template: template},
		}
	}
	if retries == nil {
		retries = new(int32)
		if p.spec.RestartPolicy == v1.RestartPolicyOnFailure {
			*retries = math.MaxInt32
		}
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: name,
		Spec: batchv1.JobSpec{Completions: &replicas, Parallelism: &replicas, BackoffLimit: retries, Template: template},
	}
}
