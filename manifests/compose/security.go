package compose

import (
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
)

// security converts what a container may do.
func (p *pod) security(at place, s *types.ContainerSpec) *v1.SecurityContext {
	yes := true
	c := &v1.SecurityContext{}
	if s.Privileged {
		c.Privileged = &yes
	}
	if s.ReadOnly {
		c.ReadOnlyRootFilesystem = &yes
	}
	if len(s.CapAdd)+len(s.CapDrop) > 0 {
		c.Capabilities = &v1.Capabilities{Add: capabilities(s.CapAdd), Drop: capabilities(s.CapDrop)}
	}
	p.user(at, s.User, c)
	for _, group := range s.GroupAdd {
		id, err := strconv.ParseInt(group, 10, 64)
		if err != nil {
			p.warn(at.at("group_add", item(group)), "groups are given by numbers: %s is left out", group)
			continue
		}
		if !slices.Contains(p.spec.SecurityContext.SupplementalGroups, id) {
			p.spec.SecurityContext.SupplementalGroups = append(p.spec.SecurityContext.SupplementalGroups, id)
		}
	}
	for _, option := range s.SecurityOpt {
		p.securityOption(at.at("security_opt", item(option)), option, c)
	}
	p.sysctls(at, s)
	if *c == (v1.SecurityContext{}) {
		return nil
	}
	return c
}

func capabilities(names []string) (all []v1.Capability) {
	for _, name := range names {
		all = append(all, v1.Capability(strings.TrimPrefix(strings.ToUpper(name), "CAP_")))
	}
	return all
}

// user sets the user and the group, which are numbers here.
func (p *pod) user(at place, text string, c *v1.SecurityContext) {
	user, group, _ := strings.Cut(text, ":")
	parse := func(name string) *int64 {
		if name == "root" {
			name = "0"
		}
		id, err := strconv.ParseInt(name, 10, 64)
		if err != nil {
			return nil
		}
		return &id
	}
	c.RunAsUser, c.RunAsGroup = parse(user), parse(group)
	if user != "" && c.RunAsUser == nil {
		c.RunAsGroup = nil // which would need a user
		p.warn(at.at("user"), "users are given by numbers: %s is left out, and the image's user is used", text)
	} else if group != "" && c.RunAsGroup == nil {
		p.warn(at.at("user"), "groups are given by numbers: the group %s is left out", group)
	}
}

// securityOption converts an option of docker: KEY, KEY=VALUE or KEY:VALUE.
func (p *pod) securityOption(at place, option string, c *v1.SecurityContext) {
	i := strings.IndexAny(option, "=:")
	key, value := option, ""
	if i >= 0 {
		key, value = option[:i], option[i+1:]
	}
	switch {
	case key == "no-new-privileges" && value != "false":
		p.noNewPrivileges(at, c)
	case key == "no-new-privileges":
	case key == "seccomp" && value == "unconfined":
		c.SeccompProfile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
	case key == "seccomp":
		p.warn(at, "the default profile is used: put this one in the directory seccomp of --root, and name it in seccompProfile")
	case key == "apparmor" && value == "unconfined":
		c.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case key == "apparmor" && value == "docker-default":
	case key == "apparmor":
		c.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &value}
	case key == "label":
		p.selinux(at, value, c)
	default:
		p.warn(at, "is left out")
	}
}

// noNewPrivileges is refused by Kubernetes for what may get them anyway.
func (p *pod) noNewPrivileges(at place, c *v1.SecurityContext) {
	if c.Privileged != nil || c.Capabilities != nil && slices.Contains(c.Capabilities.Add, "SYS_ADMIN") {
		p.warn(at, "is left out: the container is privileged, or has SYS_ADMIN")
		return
	}
	no := false
	c.AllowPrivilegeEscalation = &no
}

// selinux sets a part of the label.
func (p *pod) selinux(at place, value string, c *v1.SecurityContext) {
	key, text, found := strings.Cut(value, ":")
	options := c.SELinuxOptions
	if options == nil {
		options = &v1.SELinuxOptions{}
	}
	switch {
	case key == "user" && found:
		options.User = text
	case key == "role" && found:
		options.Role = text
	case key == "type" && found:
		options.Type = text
	case key == "level" && found:
		options.Level = text
	case value == "disable":
		options.Type = "spc_t"
	default:
		p.warn(at, "is left out")
		return
	}
	c.SELinuxOptions = options
}

// safeSysctls are those that Kubernetes allows by default (pkg/kubelet/sysctl/safe_sysctls.go).
var safeSysctls = strings.Fields(`
	kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports net.ipv4.ip_unprivileged_port_start
	net.ipv4.ping_group_range net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes
	net.ipv4.tcp_keepalive_time net.ipv4.tcp_notsent_lowat net.ipv4.tcp_rmem net.ipv4.tcp_slow_start_after_idle
	net.ipv4.tcp_syncookies net.ipv4.tcp_wmem`)

// sysctls are those of the pod.
func (p *pod) sysctls(at place, s *types.ContainerSpec) {
	for _, name := range sorted(s.Sysctls) {
		sysctl := v1.Sysctl{Name: name, Value: s.Sysctls[name]}
		if slices.Contains(p.spec.SecurityContext.Sysctls, sysctl) {
			continue
		}
		p.spec.SecurityContext.Sysctls = append(p.spec.SecurityContext.Sysctls, sysctl)
		if !slices.Contains(safeSysctls, name) {
			p.warn(at.at("sysctls", name), "allow it when you run the pods: --allow-unsafe-sysctls %s", name)
		}
	}
}
