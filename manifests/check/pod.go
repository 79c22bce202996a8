// Package check finds in pods what Kubernetes' rules let pass, and words what they say.
package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/fault"
)

// Pod finds what an API server lets pass and no node can run. The pod's fields stand
// below prefix in the document.
func Pod(doc decode.Document, p *v1.Pod, prefix string) fault.List {
	e := &finder{doc: doc}
	for _, path := range doc.NULs(strings.TrimSuffix(prefix+"spec", ".")) {
		e.fault(path, "holds a NUL byte, which no program can be given", "")
	}
	for _, list := range []struct {
		name       string
		containers []v1.Container
	}{{"initContainers", p.Spec.InitContainers}, {"containers", p.Spec.Containers}} {
		for i := range list.containers {
			e.checkContainer(fmt.Sprintf("%sspec.%s[%d]", prefix, list.name, i), &list.containers[i])
		}
	}
	for i, v := range p.Spec.Volumes {
		if v.HostPath != nil && v.HostPath.Path != "" && !strings.HasPrefix(v.HostPath.Path, "/") {
			e.fault(fmt.Sprintf("%sspec.volumes[%d].hostPath.path", prefix, i), "is no absolute path", "begin it with /")
		}
		if v.Image != nil {
			e.checkImage(fmt.Sprintf("%sspec.volumes[%d].image.reference", prefix, i), v.Image.Reference)
		}
	}
	return e.faults
}

type finder struct {
	doc    decode.Document
	faults fault.List
}

func (e *finder) fault(field, message, hint string) {
	e.faults = append(e.faults, e.doc.Fault(field, message, hint))
}

func (e *finder) checkContainer(path string, c *v1.Container) {
	e.checkImage(path+".image", c.Image)
	for i, m := range c.VolumeMounts {
		if strings.Contains(m.MountPath, ":") {
			e.fault(fmt.Sprintf("%s.volumeMounts[%d].mountPath", path, i), "must not contain ':'", "")
		}
	}
	e.checkSubPaths(path, c)
	e.checkPorts(path, c)
	if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil {
		return
	}
	caps := c.SecurityContext.Capabilities
	e.checkCapabilities(path+".securityContext.capabilities.add", caps.Add)
	e.checkCapabilities(path+".securityContext.capabilities.drop", caps.Drop)
}

// checkImage parses the reference as the kubelet does before it pulls
// (pkg/util/parsers/parsers.go).
func (e *finder) checkImage(path, image string) {
	if image == "" {
		return // Kubernetes' rules have said so
	}
	_, err := reference.ParseNormalizedNamed(image)
	if err == nil {
		return
	}
	hint := e.doc.TemplateHint(path)
	switch {
	case hint != "":
	case strings.ContainsAny(image, "“”‘’"):
		hint = `write plain quotes: "`
	case strings.Contains(image, "://"):
		hint = "leave out " + image[:strings.Index(image, "://")+3]
	}
	e.fault(path, fmt.Sprintf("Invalid value: %q: %v", image, err), hint)
}

func (e *finder) checkCapabilities(path string, list []v1.Capability) {
	known := append(strings.Fields(capabilities), "ALL")
	for i, c := range list {
		name := strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
		if slices.Contains(known, name) {
			continue
		}
		hint := ""
		if near := decode.Nearest(name, known); near != "" {
			hint = "did you mean " + near + "?"
		}
		e.fault(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("there is no capability %q", string(c)), hint)
	}
}

// capabilities are those of Linux (include/uapi/linux/capability.h).
const capabilities = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE " +
	"SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME " +
	"SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG " +
	"WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
