package validation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/runonce/runonce/manifests/decode"
)

// Pod sets the defaults of the pod and validates it as new
// (pkg/registry/core/pod/strategy.go). Warnings are "field: message".
func (r *Rules) Pod(p *v1.Pod) (errs field.ErrorList, warnings []string) {
	setAppArmorProfiles(p)
	corev1.SetObjectDefaults_Pod(p)
	r.SetNamespace(p)
	var in core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(p, &in, nil); err != nil {
		return internal(err), nil
	}
	// An API server does this after admission, not among the other defaults.
	podutil.DefaultPodLevelResources(&in)
	if in.Spec.Resources != nil {
		if err := corev1.Convert_core_ResourceRequirements_To_v1_ResourceRequirements(in.Spec.Resources, p.Spec.Resources, nil); err != nil {
			return internal(err), nil
		}
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&in.Spec, nil, &in.ObjectMeta, nil)
	opts.ResourceIsPod = true
	// An API server's admission gives every pod an account before it is validated.
	errs = slices.DeleteFunc(corevalidation.ValidatePodCreate(&in, opts), func(err *field.Error) bool {
		return err.Detail == "must not be specified when serviceAccountName is not set"
	})
	if len(errs) > 0 {
		return errs, nil
	}
	return nil, podutil.GetWarningsForPod(context.Background(), &in, nil)
}

// CheckPod sets the defaults of the pod, whose fields are below prefix in the document, and
// returns all problems with it. For further pods of the same template first is false, and only
// errors that may differ between them are returned.
func (r *Rules) CheckPod(doc decode.Document, p *v1.Pod, prefix string, first bool) decode.Diagnostics {
	errs, warnings := r.Pod(p)
	problems := append(Diagnose(doc, podErrors(errs, p), prefix), checkNames(doc, p)...)
	if !first {
		return problems
	}
	if len(doc.Wrong()) > 0 {
		warnings = nil // they may be about what was not decoded
	}
	found := findProblems(doc, p, prefix)
	for _, w := range warnings {
		path, message, ok := strings.Cut(w, ": ")
		if !ok {
			path, message = "", w
		}
		if strings.Contains(path, ".resources.requests[") && !doc.Has(prefix+path) {
			continue // the default from the limit, which has the same warning
		}
		if slices.ContainsFunc(found, func(d decode.Diagnostic) bool { return d.Field == prefix+path && d.Severity == decode.SeverityError }) {
			continue
		}
		problems = append(problems, doc.Warning(prefix+path, message, warningHint(message)))
	}
	return append(problems, found...)
}

// findProblems finds what an API server accepts and no node can run.
func findProblems(doc decode.Document, p *v1.Pod, prefix string) decode.Diagnostics {
	f := &finder{doc: doc}
	for _, path := range doc.NULs(prefix + "spec") {
		f.fail(path, "contains a NUL byte, which cannot be passed to a program", "")
	}
	for i := range p.Spec.InitContainers {
		f.checkContainer(fmt.Sprintf("%sspec.initContainers[%d]", prefix, i), &p.Spec.InitContainers[i], p.Spec.Volumes)
	}
	for i := range p.Spec.Containers {
		f.checkContainer(fmt.Sprintf("%sspec.containers[%d]", prefix, i), &p.Spec.Containers[i], p.Spec.Volumes)
	}
	if r := p.Spec.Resources; r != nil {
		f.checkMemory(prefix+"spec.resources", r.Limits)
	}
	for i, v := range p.Spec.Volumes {
		if v.HostPath != nil && v.HostPath.Path != "" && !strings.HasPrefix(v.HostPath.Path, "/") {
			f.fail(fmt.Sprintf("%sspec.volumes[%d].hostPath.path", prefix, i), "must be an absolute path", "begin it with /")
		}
		if d := v.GCEPersistentDisk; d != nil && strings.Contains(d.PDName, "/") {
			f.fail(fmt.Sprintf("%sspec.volumes[%d].gcePersistentDisk.pdName", prefix, i), "must not contain '/'", "write the device name of the disk")
		}
		if v.Image != nil {
			f.checkImage(fmt.Sprintf("%sspec.volumes[%d].image.reference", prefix, i), v.Image.Reference)
		}
	}
	f.checkPaths(prefix, p)
	return f.problems
}

type finder struct {
	doc      decode.Document
	problems decode.Diagnostics
}

func (f *finder) fail(field, message, hint string) {
	if f.doc.IsWrong(field) {
		return
	}
	f.problems = append(f.problems, f.doc.Error(field, message, hint))
}

func (f *finder) checkContainer(path string, c *v1.Container, volumes []v1.Volume) {
	f.checkImage(path+".image", c.Image)
	f.checkMemory(path+".resources", c.Resources.Limits)
	f.checkMounts(path, c, volumes)
	for i, m := range c.VolumeMounts {
		if strings.Contains(m.MountPath, ":") {
			f.fail(fmt.Sprintf("%s.volumeMounts[%d].mountPath", path, i), "must not contain ':'", "")
		}
	}
	if len(f.doc.Wrong()) == 0 { // the variable or the port may be among them
		f.checkSubPaths(path, c)
		f.checkPorts(path, c)
	}
	if c.SecurityContext == nil || c.SecurityContext.Capabilities == nil {
		return
	}
	caps := c.SecurityContext.Capabilities
	f.checkCapabilities(path+".securityContext.capabilities.add", caps.Add)
	f.checkCapabilities(path+".securityContext.capabilities.drop", caps.Drop)
}

// checkImage parses the reference as the kubelet does before a pull
// (pkg/util/parsers/parsers.go).
func (f *finder) checkImage(path, image string) {
	if image == "" {
		return // Kubernetes' validation has reported it
	}
	_, err := reference.ParseNormalizedNamed(image)
	if err == nil {
		return
	}
	hint := f.doc.TemplateHint(path)
	switch {
	case hint != "":
	case strings.HasPrefix(image, "$"):
		hint = "looks like an unrendered template: " + image
	case strings.ContainsAny(image, "“”‘’"):
		hint = `write plain quotes: "`
	case strings.Contains(image, "://"):
		hint = "leave out " + image[:strings.Index(image, "://")+3]
	}
	f.fail(path, fmt.Sprintf("Invalid value: %q: %v", image, err), hint)
}

func (f *finder) checkCapabilities(path string, list []v1.Capability) {
	known := append(strings.Fields(capabilityNames), "ALL")
	for i, c := range list {
		name := strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
		if slices.Contains(known, name) {
			continue
		}
		f.fail(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("unknown capability %q", string(c)), decode.DidYouMean(name, known))
	}
}

// capabilityNames are those of include/uapi/linux/capability.h.
const capabilityNames = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP " +
	"LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE " +
	"SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME " +
	"SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG " +
	"WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
