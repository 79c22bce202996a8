package compose

import (
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
)

// container converts what all containers have: those of services, and those that run before them.
func (p *pod) container(name string, at place, s *types.ContainerSpec) v1.Container {
	container := v1.Container{Name: name, Image: s.Image, ImagePullPolicy: p.pullPolicy(at, s), WorkingDir: s.WorkingDir}
	p.command(at, s, &container)
	for _, key := range sorted(s.Environment) {
		if value := s.Environment[key]; value != nil {
			container.Env = append(container.Env, v1.EnvVar{Name: key, Value: literal(*value)})
		}
	}
	container.Resources = p.resources(at, s)
	container.SecurityContext = p.security(at, s)
	p.platform(at, s)
	p.stopSignal(at, s, &container)
	p.mounts(at, s, &container)
	return container
}

// command sets the command and its arguments. Without an entrypoint, the image's is used.
func (p *pod) command(at place, s *types.ContainerSpec, container *v1.Container) {
	switch {
	case len(s.Entrypoint) > 0 && s.Entrypoint[0] != "":
		container.Command, container.Args = literals(s.Entrypoint), literals(s.Command)
	case s.Entrypoint == nil:
		container.Args = literals(s.Command)
	case len(s.Command) > 0: // the entrypoint is to be empty
		container.Command = literals(s.Command)
	default:
		p.fail(at.at("entrypoint"), "is empty, so the image's command would run alone, which a pod cannot say: write that command here")
	}
}

// literal returns a text that Kubernetes leaves as it is, although it replaces $(NAME) and $$.
func literal(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if text[i] == '$' && i+1 < len(text) && (text[i+1] == '$' || text[i+1] == '(') {
			b.WriteByte('$')
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func literals(words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = literal(w)
	}
	return all
}

// pullPolicy is IfNotPresent by default, also for the tag latest.
func (c *converter) pullPolicy(at place, s *types.ContainerSpec) v1.PullPolicy {
	switch s.PullPolicy {
	case types.PullPolicyAlways:
		return v1.PullAlways
	case types.PullPolicyNever:
		return v1.PullNever
	case "", types.PullPolicyMissing, types.PullPolicyIfNotPresent:
		return v1.PullIfNotPresent
	case types.PullPolicyBuild:
		c.warn(at.at("pull_policy"), "nothing here builds %s: it is pulled if it is not present", s.Image)
		return v1.PullIfNotPresent
	}
	c.warn(at.at("pull_policy"), "%s: the image is pulled in every run", s.PullPolicy)
	return v1.PullAlways
}

// platform asks for a node of the platform's architecture.
func (p *pod) platform(at place, s *types.ContainerSpec) {
	if s.Platform == "" {
		return
	}
	system, arch, found := strings.Cut(s.Platform, "/")
	if !found && system != "linux" {
		system, arch = "linux", system
	}
	arch, variant, _ := strings.Cut(arch, "/")
	if system != "linux" {
		p.fail(at.at("platform"), "%s: only Linux containers run here", s.Platform)
		return
	}
	if variant != "" && s.Platform != "linux/arm64/v8" {
		p.warn(at.at("platform"), "any machine with the architecture %s will do", arch)
	}
	if known, ok := map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[arch]; ok {
		arch = known
	}
	if arch != "" {
		p.spec.NodeSelector = map[string]string{v1.LabelArchStable: arch}
	}
}

// signals are those that Kubernetes knows by another name than with SIG in front, and numbers that all machines share.
var signals = map[string]string{
	"1": "SIGHUP", "2": "SIGINT", "3": "SIGQUIT", "6": "SIGABRT", "9": "SIGKILL", "10": "SIGUSR1", "12": "SIGUSR2", "14": "SIGALRM", "15": "SIGTERM",
	"28": "SIGWINCH", "37": "SIGRTMIN+3",
}

func (p *pod) stopSignal(at place, s *types.ContainerSpec, container *v1.Container) {
	if s.StopSignal == "" {
		return
	}
	name, ok := signals[s.StopSignal]
	if !ok {
		name = "SIG" + strings.TrimPrefix(strings.ToUpper(s.StopSignal), "SIG")
	}
	if _, err := strconv.Atoi(s.StopSignal); err == nil && !ok {
		p.warn(at.at("stop_signal"), "signal %s has no name here: the image's is sent, or SIGTERM", s.StopSignal)
		return
	}
	signal := v1.Signal(name)
	container.Lifecycle = &v1.Lifecycle{StopSignal: &signal}
	p.spec.OS = &v1.PodOS{Name: v1.Linux} // without which Kubernetes refuses signals
}

// hooks converts the commands that run in the container after its start and before its end.
func (p *pod) hooks(s *types.ServiceConfig, container *v1.Container) {
	handler := func(key string, hooks []types.ServiceHook) *v1.LifecycleHandler {
		if len(hooks) == 0 {
			return nil
		}
		at := field(s, key)
		if len(hooks) > 1 {
			p.warn(at, "only the first command is run: a container has one such hook")
		}
		if h := hooks[0]; h.User != "" || h.Privileged || h.WorkingDir != "" || len(h.Environment) > 0 {
			p.warn(at, "the command runs with the user, the privileges, the directory and the environment of the container")
		}
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: hooks[0].Command}}
	}
	after, before := handler("post_start", s.PostStart), handler("pre_stop", s.PreStop)
	if after == nil && before == nil {
		return
	}
	if container.Lifecycle == nil {
		container.Lifecycle = &v1.Lifecycle{}
	}
	container.Lifecycle.PostStart, container.Lifecycle.PreStop = after, before
}
