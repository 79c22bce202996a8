package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newPod returns a random pod whose containers write ledgers into a directory. Without faults
// its outcome is known: see succeeds and fails.
func newPod(r *rand.Rand, n int, firstPort int32, ledgers string) *v1.Pod {
	grace := int64(r.IntN(3))
	p := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", n)},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			HostNetwork:                   r.IntN(3) == 0,
			RestartPolicy:                 []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyNever, v1.RestartPolicyOnFailure}[r.IntN(3)],
			Volumes:                       []v1.Volume{hostPath("ledgers", ledgers), memory("scratch")},
		},
	}
	if r.IntN(4) == 0 {
		shared := true
		p.Spec.ShareProcessNamespace = &shared
	}
	add := func(to *[]v1.Container, name, code string, seconds float64) *v1.Container {
		args := []string{"ledger", "/ledgers/" + p.Name + "." + name, code}
		if seconds >= 0 {
			args = append(args, strconv.FormatFloat(seconds, 'f', 2, 64)+"s")
		}
		*to = append(*to, v1.Container{
			Name: name, Image: "localhost/box:1", Args: args,
			VolumeMounts: []v1.VolumeMount{{Name: "ledgers", MountPath: "/ledgers"}, {Name: "scratch", MountPath: "/scratch"}},
		})
		return &(*to)[len(*to)-1]
	}
	for i := range r.IntN(3) {
		add(&p.Spec.InitContainers, fmt.Sprintf("init%d", i), "0", r.Float64()/4)
	}
	if r.IntN(4) == 0 {
		always := v1.ContainerRestartPolicyAlways
		add(&p.Spec.InitContainers, sidecarName, "0", -1).RestartPolicy = &always
	}
	for i := range 1 + r.IntN(2) {
		name := fmt.Sprintf("main%d", i)
		switch {
		case p.Spec.RestartPolicy == v1.RestartPolicyAlways:
			add(&p.Spec.Containers, name, "0", -1)
		case p.Spec.RestartPolicy == v1.RestartPolicyNever && r.IntN(3) == 0:
			add(&p.Spec.Containers, name, strconv.Itoa(1+r.IntN(100)), r.Float64())
		default:
			add(&p.Spec.Containers, name, "0", r.Float64())
		}
	}
	if !p.Spec.HostNetwork && r.IntN(3) == 0 {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: firstPort + int32(n)}}
	}
	return p
}

// sidecarName is the name of every sidecar.
const sidecarName = "sidecar"

func hostPath(name, path string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}}
}

func memory(name string) v1.Volume {
	limit := resource.MustParse("1Mi")
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}}}
}

// outcomes returns how the pod may end if nothing is done to it.
func outcomes(p *v1.Pod) string {
	switch {
	case p.Spec.RestartPolicy == v1.RestartPolicyAlways:
		return "Ready"
	case fails(p):
		return "Failed"
	}
	return "Succeeded"
}

// fails tells whether a container of the pod exits with an error.
func fails(p *v1.Pod) bool {
	for _, c := range p.Spec.Containers {
		if c.Args[2] != "0" {
			return true
		}
	}
	return false
}

// containers are the names of the pod's containers.
func containers(p *v1.Pod) []string {
	var names []string
	for _, all := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range all {
			names = append(names, c.Name)
		}
	}
	return names
}

// describe is the pod in a few words.
func describe(p *v1.Pod) string {
	words := []string{string(p.Spec.RestartPolicy), strings.Join(containers(p), "+")}
	if p.Spec.HostNetwork {
		words = append(words, "host")
	}
	return p.Name + "(" + strings.Join(words, " ") + ")"
}

// ledgerOf is the path of a container's ledger.
func ledgerOf(dir string, p *v1.Pod, container string) string {
	return filepath.Join(dir, p.Name+"."+container)
}
