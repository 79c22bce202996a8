package report

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// containers describes containers, with their statuses as far as they have any.
func (s *sections) containers(title string, all []v1.Container, statuses []v1.ContainerStatus, d *Description) {
	s.line(0, title+":")
	for i := range all {
		c := &all[i]
		var status *v1.ContainerStatus
		if at := slices.IndexFunc(statuses, func(cs v1.ContainerStatus) bool { return cs.Name == c.Name }); at >= 0 {
			status = &statuses[at]
		}
		s.line(1, c.Name+":")
		s.container(c, status, d)
	}
}

// level is that of the lines of a container or a volume.
const level = 2

func (s *sections) container(c *v1.Container, status *v1.ContainerStatus, d *Description) {
	if status != nil {
		s.line(level, "Container ID:", status.ContainerID)
	}
	s.line(level, "Image:", c.Image)
	if status != nil {
		s.line(level, "Image ID:", status.ImageID)
		if digest := d.Digests[c.Name]; !strings.Contains(status.ImageID, digest) {
			s.line(level, "Image Digest:", digest)
		}
	}
	s.ports(c.Ports)
	if c.SecurityContext != nil {
		s.seccomp(level, c.SecurityContext.SeccompProfile)
	}
	s.words("Command:", c.Command)
	s.words("Args:", c.Args)
	if c.RestartPolicy != nil {
		s.line(level, "Restart Policy:", string(*c.RestartPolicy))
	}
	if status != nil {
		s.containerState("State:", status.State)
		if status.LastTerminationState.Terminated != nil {
			s.containerState("Last State:", status.LastTerminationState)
		}
		s.line(level, "Ready:", truth(status.Ready))
		s.line(level, "Restart Count:", strconv.Itoa(int(status.RestartCount)))
	}
	for _, one := range d.Containers {
		if one.Name == c.Name {
			s.optional(level, "Log:", one.LogPath)
		}
	}
	s.resources(level, &c.Resources)
	s.usage(c.Name, d)
	for _, probe := range []struct {
		title string
		of    *v1.Probe
	}{{"Liveness:", c.LivenessProbe}, {"Readiness:", c.ReadinessProbe}, {"Startup:", c.StartupProbe}} {
		if probe.of != nil {
			s.line(level, probe.title, probeText(probe.of))
		}
	}
	s.environment(c, d)
	s.mounts(c)
}

// usage is what the container uses now, and what it has used in all.
func (s *sections) usage(name string, d *Description) {
	var lines [][2]string
	if d.Usage != nil {
		if used, ok := d.Usage.Of(name); ok {
			lines = append(lines, [2]string{"cpu:", cpuText(used)}, [2]string{"memory:", memoryText(used)})
		}
	}
	for _, one := range d.Containers {
		if used := one.Usage; one.Name == name {
			kills := ""
			if used.OOMKills != nil {
				kills = strconv.FormatInt(*used.OOMKills, 10)
			}
			lines = append(lines, [][2]string{
				{"cpu time:", secondsText(used)},
				{"peak memory:", peakText(used)},
				{"read:", bytesText(used.ReadBytes)},
				{"written:", bytesText(used.WrittenBytes)},
				{"OOM kills:", kills},
			}...)
		}
	}
	lines = slices.DeleteFunc(lines, func(l [2]string) bool { return l[1] == "" })
	if len(lines) > 0 {
		s.line(level, "Usage:")
	}
	for _, l := range lines {
		s.line(level+1, l[0], l[1])
	}
}

// ports are those of the container and of the machine.
func (s *sections) ports(all []v1.ContainerPort) {
	own, host := make([]string, 0, len(all)), make([]string, 0, len(all))
	for _, p := range all {
		text := func(n int32) string {
			text := fmt.Sprintf("%d/%s", n, cmp.Or(p.Protocol, v1.ProtocolTCP))
			if p.Name != "" {
				text += " (" + p.Name + ")"
			}
			return text
		}
		own, host = append(own, text(p.ContainerPort)), append(host, text(p.HostPort))
	}
	title := "Port"
	if len(all) > 1 {
		title = "Ports"
	}
	s.line(level, title+":", cmp.Or(strings.Join(own, ", "), none))
	s.line(level, "Host "+title+":", cmp.Or(strings.Join(host, ", "), none))
}

// words are the arguments of a command, each in lines of its own.
func (s *sections) words(title string, all []string) {
	if len(all) == 0 {
		return
	}
	s.line(level, title)
	for _, word := range all {
		for line := range strings.SplitSeq(word, "\n") {
			s.line(level+1, line)
		}
	}
}

func (s *sections) containerState(title string, state v1.ContainerState) {
	switch {
	case state.Running != nil:
		s.line(level, title, "Running")
		s.line(level+1, "Started:", timeText(state.Running.StartedAt.Time))
	case state.Terminated != nil:
		end := state.Terminated
		s.line(level, title, "Terminated")
		s.optional(level+1, "Reason:", end.Reason)
		s.optional(level+1, "Message:", end.Message)
		s.line(level+1, "Exit Code:", strconv.Itoa(int(end.ExitCode)))
		if end.Signal > 0 {
			s.line(level+1, "Signal:", strconv.Itoa(int(end.Signal)))
		}
		s.line(level+1, "Started:", timeText(end.StartedAt.Time))
		s.line(level+1, "Finished:", timeText(end.FinishedAt.Time))
	default:
		s.line(level, title, "Waiting")
		if w := state.Waiting; w != nil {
			s.optional(level+1, "Reason:", w.Reason)
			s.optional(level+1, "Message:", w.Message)
		}
	}
}

// probeText says what a probe does, and when (k8s.io/kubectl/pkg/describe DescribeProbe).
func probeText(p *v1.Probe) string {
	when := fmt.Sprintf("delay=%ds timeout=%ds period=%ds successThreshold=%d failureThreshold=%d",
		p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
	port := func(host string, port intstr.IntOrString) string { return net.JoinHostPort(host, port.String()) }
	switch {
	case p.Exec != nil:
		return fmt.Sprintf("exec %v %s", p.Exec.Command, when)
	case p.HTTPGet != nil:
		u := url.URL{Scheme: strings.ToLower(string(p.HTTPGet.Scheme)), Host: port(p.HTTPGet.Host, p.HTTPGet.Port), Path: p.HTTPGet.Path}
		return fmt.Sprintf("http-get %s %s", u.String(), when)
	case p.TCPSocket != nil:
		return fmt.Sprintf("tcp-socket %s %s", port(p.TCPSocket.Host, p.TCPSocket.Port), when)
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		return join(" ", fmt.Sprintf("grpc <pod>:%d", p.GRPC.Port), service, when)
	}
	return "unknown " + when
}

// environment are the variables, without the values of Secrets.
func (s *sections) environment(c *v1.Container, d *Description) {
	if len(c.EnvFrom) > 0 {
		s.line(level, "Environment Variables from:")
		for _, from := range c.EnvFrom {
			kind, name, optional := "ConfigMap", "", (*bool)(nil)
			switch {
			case from.ConfigMapRef != nil:
				name, optional = from.ConfigMapRef.Name, from.ConfigMapRef.Optional
			case from.SecretRef != nil:
				kind, name, optional = "Secret", from.SecretRef.Name, from.SecretRef.Optional
			}
			if from.Prefix != "" {
				kind += fmt.Sprintf(" with prefix '%s'", from.Prefix)
			}
			s.line(level+1, name, kind, optionalText(optional))
		}
	}
	if len(c.Env) == 0 {
		s.line(level, "Environment:", none)
		return
	}
	s.line(level, "Environment:")
	for i := range c.Env {
		if e := &c.Env[i]; e.ValueFrom == nil {
			s.lines(level+1, e.Name+":", strings.Split(e.Value, "\n")...)
		} else {
			s.line(level+1, append([]string{e.Name + ":"}, sourceText(e.ValueFrom, c, d)...)...)
		}
	}
}

func optionalText(optional *bool) string {
	return "Optional: " + strconv.FormatBool(optional != nil && *optional)
}

// sourceText says where the value of a variable is from, and the value itself if the pod has it.
func sourceText(from *v1.EnvVarSource, c *v1.Container, d *Description) []string {
	switch {
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		return []string{fmt.Sprintf("<set to the key '%s' in secret '%s'>", ref.Key, ref.Name), optionalText(ref.Optional)}
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		return []string{fmt.Sprintf("<set to the key '%s' of config map '%s'>", ref.Key, ref.Name), optionalText(ref.Optional)}
	case from.FileKeyRef != nil:
		ref := from.FileKeyRef
		return []string{fmt.Sprintf("<set to the key '%s' of file '%s' in volume '%s'>", ref.Key, ref.Path, ref.VolumeName), optionalText(ref.Optional)}
	case from.FieldRef != nil:
		return []string{join(" ", fieldText(from.FieldRef.FieldPath, d), fmt.Sprintf("(%s:%s)", cmp.Or(from.FieldRef.APIVersion, "v1"), from.FieldRef.FieldPath))}
	case from.ResourceFieldRef != nil:
		return []string{join(" ", resourceText(from.ResourceFieldRef, c), "("+from.ResourceFieldRef.Resource+")")}
	}
	return nil
}

// fieldText is the value of a field of the pod, as the downward API has it (pkg/fieldpath), "" if it is not known.
func fieldText(path string, d *Description) string {
	pod := d.Pod
	if field, rest, ok := strings.Cut(path, "['"); ok {
		from := map[string]map[string]string{"metadata.labels": pod.Labels, "metadata.annotations": pod.Annotations}[field]
		return from[strings.TrimSuffix(rest, "']")]
	}
	switch path {
	case "metadata.name":
		return pod.Name
	case "metadata.namespace":
		return pod.Namespace
	case "metadata.uid":
		return string(pod.UID)
	case "spec.nodeName":
		return cmp.Or(d.Node, pod.Spec.NodeName)
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName
	case "status.podIP":
		return pod.Status.PodIP
	case "status.podIPs":
		return strings.Join(podIPs(pod.Status), ",")
	case "status.hostIP":
		return pod.Status.HostIP
	}
	return ""
}

// resourceText is a limit or a request of the container in units of the divisor, rounded up
// (k8s.io/kubectl/pkg/util/resource).
func resourceText(ref *v1.ResourceFieldSelector, c *v1.Container) string {
	list, name, _ := strings.Cut(ref.Resource, ".")
	of := map[string]v1.ResourceList{"limits": c.Resources.Limits, "requests": c.Resources.Requests}[list]
	q, ok := of[v1.ResourceName(name)]
	switch {
	case !ok && list == "limits":
		return "node allocatable"
	case !ok:
		return "0"
	}
	unit := ref.Divisor
	if unit.IsZero() {
		unit = resource.MustParse("1")
	}
	amount, each := q.Value(), unit.Value()
	if name == string(v1.ResourceCPU) {
		amount, each = q.MilliValue(), unit.MilliValue()
	}
	return strconv.FormatInt((amount+each-1)/each, 10)
}

// mounts are those of volumes and of block devices.
func (s *sections) mounts(c *v1.Container) {
	if len(c.VolumeMounts) == 0 {
		s.line(level, "Mounts:", none)
	} else {
		s.line(level, "Mounts:")
	}
	for _, m := range slices.SortedStableFunc(slices.Values(c.VolumeMounts), func(a, b v1.VolumeMount) int { return cmp.Compare(a.MountPath, b.MountPath) }) {
		flags := "rw"
		if m.ReadOnly {
			flags = "ro"
		}
		if path := cmp.Or(m.SubPath, m.SubPathExpr); path != "" {
			flags += fmt.Sprintf(",path=%q", path)
		}
		s.line(level+1, fmt.Sprintf("%s from %s (%s)", m.MountPath, m.Name, flags))
	}
	if len(c.VolumeDevices) == 0 {
		return
	}
	s.line(level, "Devices:")
	for _, device := range c.VolumeDevices {
		s.line(level+1, fmt.Sprintf("%s from %s", device.DevicePath, device.Name))
	}
}
