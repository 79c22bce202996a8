package validation

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// variable is a reference to a variable, or an escaped dollar.
var variable = regexp.MustCompile(`\$\$|\$\(([^)]*)\)`)

// checkSubPaths expands each subPathExpr as far as the manifest alone determines its value: the
// kubelet does so only when it starts the container (ExpandContainerVolumeMounts of
// pkg/kubelet/container/helpers.go).
func (f *finder) checkSubPaths(at string, c *v1.Container) {
	if !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.SubPathExpr != "" }) {
		return
	}
	vars := map[string]string{}
	unknown := len(c.EnvFrom) > 0 // its keys are not known
	names := make([]string, 0, len(c.Env))
	var computed []string
	for _, v := range c.Env {
		names = append(names, v.Name)
		vars[v.Name] = v.Value
		if v.ValueFrom != nil || strings.Contains(v.Value, "$(") {
			computed = append(computed, v.Name)
		}
	}
	for i, m := range c.VolumeMounts {
		field := fmt.Sprintf("%s.volumeMounts[%d].subPathExpr", at, i)
		complete := true
		got := variable.ReplaceAllStringFunc(m.SubPathExpr, func(ref string) string {
			name := strings.Trim(ref, "$()")
			value, ok := vars[name]
			switch {
			case ref == "$$":
				return "$"
			case slices.Contains(computed, name), !ok && unknown:
				complete = false
			case !ok:
				f.fail(field, fmt.Sprintf("the container has no variable %q", name), cmp.Or(decode.DidYouMean(name, names), "add it to env"))
				complete = false
			case value == "":
				f.fail(field, fmt.Sprintf("the variable %q is empty", name), "")
				complete = false
			}
			return value
		})
		if complete {
			f.checkSubPath(field, got)
		}
	}
}

// checkSubPath checks an expanded path by the rules of a subPath
// (validateLocalNonReservedPath of pkg/apis/core/validation).
func (f *finder) checkSubPath(field, got string) {
	switch {
	case path.IsAbs(got):
		f.fail(field, fmt.Sprintf("expands to %q, which must be a relative path", got), "")
	case slices.Contains(strings.Split(got, "/"), ".."):
		f.fail(field, fmt.Sprintf("expands to %q, which must not contain '..'", got), "")
	}
}

// checkPorts finds probes and hooks with the name of a port that the container does not have:
// an API server accepts them, and they always fail.
func (f *finder) checkPorts(at string, c *v1.Container) {
	names := make([]string, 0, len(c.Ports))
	for _, p := range c.Ports {
		names = append(names, p.Name)
	}
	check := func(field, port string) {
		if port == "" || slices.Contains(names, port) {
			return
		}
		hint := cmp.Or(decode.DidYouMean(port, names), "give one of its ports this name, or use the number")
		f.problems = append(f.problems, f.doc.Warning(at+"."+field, fmt.Sprintf("the container has no port named %q", port), hint))
	}
	for name, p := range map[string]*v1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if p != nil && p.HTTPGet != nil {
			check(name+".httpGet.port", p.HTTPGet.Port.StrVal)
		}
		if p != nil && p.TCPSocket != nil {
			check(name+".tcpSocket.port", p.TCPSocket.Port.StrVal)
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for name, h := range map[string]*v1.LifecycleHandler{"postStart": c.Lifecycle.PostStart, "preStop": c.Lifecycle.PreStop} {
		if h != nil && h.HTTPGet != nil {
			check("lifecycle."+name+".httpGet.port", h.HTTPGet.Port.StrVal)
		}
	}
}

// leastMemory is a memory limit in bytes below which no OCI runtime can start a container: crun, which needs
// less than the others, cannot with 128Ki and can with 256Ki; runc needs more than 1Mi.
const leastMemory = 64 << 10

// checkMemory finds a memory limit that was meant to be higher, such as 512m. No limit, or 0, is not one.
func (f *finder) checkMemory(path string, limits v1.ResourceList) {
	limit := limits.Memory()
	if limit.IsZero() || limit.Value() >= leastMemory {
		return
	}
	hint := "give it a unit: Mi is a mebibyte"
	if limit.MilliValue()%1000 != 0 {
		hint = warningHint(fractional)
	}
	f.fail(path+".limits[memory]", fmt.Sprintf("Invalid value: %q: no container can start in less than %dKi of memory", limit, leastMemory>>10), hint)
}
