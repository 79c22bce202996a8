// Package gce reads the container declarations of Compute Engine: what the container start-up agent, konlet, finds
// in the attribute gce-container-declaration of an instance. A declaration becomes a pod that has what the agent
// gives a container, and fields at the same paths.
package gce

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runonce/runonce/manifests/decode"
)

// Attribute is the name of the attribute of an instance that has its declaration, and of the format.
const Attribute = "gce-container-declaration"

// DefaultName is the name of a container, and of its pod, that the declaration gives none.
const DefaultName = "container"

// declaration has the fields that the agent reads (gce-containers-startup/types/api.go), and those with which a
// declaration can be written as a Pod, which the agent leaves alone.
type declaration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Containers    []container `json:"containers"`
		Volumes       []volume    `json:"volumes"`
		RestartPolicy *string     `json:"restartPolicy"`
	} `json:"spec"`
}

type container struct {
	Name            string           `json:"name"`
	Image           string           `json:"image"`
	Command         []string         `json:"command"`
	Args            []string         `json:"args"`
	VolumeMounts    []mount          `json:"volumeMounts"`
	Env             []variable       `json:"env"`
	SecurityContext *securityContext `json:"securityContext"`
	Stdin           bool             `json:"stdin"`
	TTY             bool             `json:"tty"`
}

type mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type securityContext struct {
	Privileged bool `json:"privileged"`
}

type volume struct {
	Name     string `json:"name"`
	EmptyDir *struct {
		Medium string `json:"medium"`
	} `json:"emptyDir"`
	HostPath *struct {
		Path string `json:"path"`
	} `json:"hostPath"`
	GCEPersistentDisk *struct {
		PDName    string `json:"pdName"`
		FSType    string `json:"fsType"`
		Partition int32  `json:"partition"`
	} `json:"gcePersistentDisk"`
}

// Pod returns the pod of a declaration, nil if there are errors among the problems. Whether its values are valid
// for Kubernetes is not checked here.
func Pod(doc decode.Document) (*v1.Pod, decode.Diagnostics) {
	var d declaration
	decode.Texts(doc, &d)
	if problems := decode.Into(doc, &d); len(problems) > 0 {
		return nil, explained(problems)
	}
	c := checker{doc: doc}
	c.check(&d)
	if len(c.problems.Of(decode.SeverityError)) > 0 {
		return nil, c.problems
	}
	return d.pod(), c.problems
}

// explained adds to unknown fields what to do about them.
func explained(problems decode.Diagnostics) decode.Diagnostics {
	for i := range problems {
		if p := &problems[i]; p.Message == decode.UnknownField && p.Hint == "" {
			p.Hint = "the agent does not read it either: remove it, or write a Pod"
		}
	}
	return problems
}

// pod returns the pod of a valid declaration: a container on the network of the host, as docker starts it for the agent.
func (d *declaration) pod() *v1.Pod {
	from := &d.Spec.Containers[0]
	name := cmp.Or(from.Name, DefaultName)
	pod := &v1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", cmp.Or(d.Metadata.Name, name)
	pod.Spec = v1.PodSpec{
		HostNetwork: true, DNSPolicy: v1.DNSDefault, RestartPolicy: v1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: new(int64(stopSeconds)),
		SecurityContext:               &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}},
	}
	if d.Spec.RestartPolicy != nil {
		pod.Spec.RestartPolicy = v1.RestartPolicy(*d.Spec.RestartPolicy)
	}
	to := v1.Container{
		Name: name, Image: from.Image, ImagePullPolicy: v1.PullAlways, Stdin: from.Stdin, TTY: from.TTY,
		Command: literals(from.Command), Args: literals(from.Args),
	}
	for _, e := range from.Env {
		to.Env = append(to.Env, v1.EnvVar{Name: e.Name, Value: literal(e.Value)})
	}
	for _, m := range from.VolumeMounts {
		to.VolumeMounts = append(to.VolumeMounts, v1.VolumeMount{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly})
	}
	if s := from.SecurityContext; s != nil && s.Privileged {
		to.SecurityContext = &v1.SecurityContext{Privileged: new(true)}
	}
	pod.Spec.Containers = []v1.Container{to}
	for i := range d.Spec.Volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, d.Spec.Volumes[i].of(from.VolumeMounts))
	}
	return pod
}

// stopSeconds is how long docker waits for a container to end.
const stopSeconds = 10

// literal returns what Kubernetes, which replaces $(NAME) and $$, makes the text of.
func literal(text string) string {
	if strings.Contains(text, "$(") || strings.Contains(text, "$$") {
		return strings.ReplaceAll(text, "$", "$$")
	}
	return text
}

func literals(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = literal(list[i])
	}
	return list
}

// of returns the volume for the mounts of the container.
func (v *volume) of(mounts []mount) v1.Volume {
	out := v1.Volume{Name: v.Name}
	switch {
	case v.EmptyDir != nil:
		out.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
	case v.HostPath != nil:
		out.HostPath = &v1.HostPathVolumeSource{Path: v.HostPath.Path}
	default:
		disk := v.GCEPersistentDisk
		out.GCEPersistentDisk = &v1.GCEPersistentDiskVolumeSource{
			PDName: disk.PDName, FSType: cmp.Or(disk.FSType, "ext4"), Partition: disk.Partition,
			ReadOnly: !slices.ContainsFunc(mounts, func(m mount) bool { return m.Name == v.Name && !m.ReadOnly }),
		}
	}
	return out
}

// checker finds what the agent refuses, and what a pod cannot do as the agent does.
type checker struct {
	doc      decode.Document
	problems decode.Diagnostics
}

func (c *checker) fail(field, message, hint string) {
	c.problems = append(c.problems, c.doc.Error(field, message, hint))
}

func (c *checker) check(d *declaration) {
	c.checkType("apiVersion", d.APIVersion, "v1")
	c.checkType("kind", d.Kind, "Pod")
	c.checkName("metadata.name", d.Metadata.Name)
	switch p := d.Spec.RestartPolicy; {
	case p == nil || slices.Contains(restartPolicies, *p):
	default:
		c.fail("spec.restartPolicy", fmt.Sprintf("%q is not a restart policy", *p),
			cmp.Or(decode.DidYouMean(*p, restartPolicies), "write "+strings.Join(restartPolicies, ", ")+" or nothing"))
	}
	switch len(d.Spec.Containers) {
	case 0:
		c.fail("spec.containers", "Required value", "a declaration has exactly one container")
	case 1:
		c.checkContainer(&d.Spec.Containers[0])
		c.checkVolumes(d.Spec.Volumes, d.Spec.Containers[0].VolumeMounts)
	default:
		c.fail("spec.containers[1]", "a declaration has exactly one container", "write a declaration for each, or a Pod")
	}
}

var restartPolicies = []string{string(v1.RestartPolicyAlways), string(v1.RestartPolicyOnFailure), string(v1.RestartPolicyNever)}

// checkType refuses another kind of object than a Pod, as which a declaration may be written.
func (c *checker) checkType(field, value, want string) {
	if value != "" && value != want {
		c.fail(field, fmt.Sprintf("%q is not that of a declaration", value), "remove it")
	}
}

// checkName checks what becomes the name of the pod.
func (c *checker) checkName(field, name string) {
	if name == "" {
		return
	}
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		c.fail(field, fmt.Sprintf("Invalid value: %q: %s", name, wrong[0]), "rename it")
	}
}

func (c *checker) checkContainer(from *container) {
	const at = "spec.containers[0]"
	c.checkName(at+".name", from.Name)
	if from.Command != nil && len(from.Command) == 0 {
		c.fail(at+".command", "an empty command has the agent run the arguments without the image's entrypoint, which a pod cannot", "name the program, or remove the field")
	}
	if whole := append(slices.Clip(from.Command), from.Args...); len(whole) == 1 && strings.ContainsAny(whole[0], " \t\n") {
		field := at + ".command[0]"
		if len(from.Command) == 0 {
			field = at + ".args[0]"
		}
		c.problems = append(c.problems, c.doc.Warning(field, fmt.Sprintf("%q is one argument, spaces included", whole[0]), "write each argument as an item of its own"))
	}
	for i, m := range from.VolumeMounts {
		if m.MountPath != "" && !strings.HasPrefix(m.MountPath, "/") {
			c.fail(fmt.Sprintf("%s.volumeMounts[%d].mountPath", at, i), "must be an absolute path", "begin it with /")
		}
	}
}

func (c *checker) checkVolumes(volumes []volume, mounts []mount) {
	for i := range volumes {
		v, at := &volumes[i], fmt.Sprintf("spec.volumes[%d]", i)
		kinds := 0
		for _, is := range []bool{v.EmptyDir != nil, v.HostPath != nil, v.GCEPersistentDisk != nil} {
			if is {
				kinds++
			}
		}
		switch {
		case kinds != 1:
			c.fail(at, fmt.Sprintf("is of %d kinds, want one", kinds), "write emptyDir, hostPath or gcePersistentDisk")
		case v.EmptyDir != nil && v.EmptyDir.Medium != string(v1.StorageMediumMemory):
			c.fail(at+".emptyDir.medium", fmt.Sprintf("%q is not supported by the agent", v.EmptyDir.Medium), "write Memory, or a Pod for a directory on disk")
		case v.Name != "" && !slices.ContainsFunc(mounts, func(m mount) bool { return m.Name == v.Name }):
			c.fail(at, fmt.Sprintf("volume %q is not mounted by the container", v.Name), "mount it, or remove it")
		}
	}
}
