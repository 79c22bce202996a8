// Package refs finds what a pod refers to.
package refs

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Ref is a pod's reference to another object of its namespace, or to one key of it.
type Ref struct {
	// Field is the path of the reference in the pod.
	Field string
	// Kind is ConfigMap, Secret or PersistentVolumeClaim.
	Kind string
	Name string
	// Key is "" for the whole object.
	Key string
	// Optional says that the pod runs without.
	Optional bool
}

// The kinds that pods refer to.
const (
	ConfigMap = "ConfigMap"
	Secret    = "Secret"
	Claim     = "PersistentVolumeClaim"
)

// Of returns the references of a pod in the order in which they are written.
func Of(p *v1.Pod) []Ref {
	var out []Ref
	for _, list := range []struct {
		name       string
		containers []v1.Container
	}{{"initContainers", p.Spec.InitContainers}, {"containers", p.Spec.Containers}} {
		for i := range list.containers {
			out = append(out, envRefs(fmt.Sprintf("spec.%s[%d]", list.name, i), &list.containers[i])...)
		}
	}
	for i := range p.Spec.Volumes {
		out = append(out, volumeRefs(fmt.Sprintf("spec.volumes[%d]", i), p.Name, &p.Spec.Volumes[i])...)
	}
	return out
}

func envRefs(path string, c *v1.Container) []Ref {
	var out []Ref
	for i, e := range c.EnvFrom {
		if r := e.ConfigMapRef; r != nil {
			out = append(out, Ref{fmt.Sprintf("%s.envFrom[%d].configMapRef.name", path, i), ConfigMap, r.Name, "", is(r.Optional)})
		}
		if r := e.SecretRef; r != nil {
			out = append(out, Ref{fmt.Sprintf("%s.envFrom[%d].secretRef.name", path, i), Secret, r.Name, "", is(r.Optional)})
		}
	}
	for i, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			out = append(out, Ref{fmt.Sprintf("%s.env[%d].valueFrom.configMapKeyRef", path, i), ConfigMap, r.Name, r.Key, is(r.Optional)})
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			out = append(out, Ref{fmt.Sprintf("%s.env[%d].valueFrom.secretKeyRef", path, i), Secret, r.Name, r.Key, is(r.Optional)})
		}
	}
	return out
}

func volumeRefs(path, pod string, v *v1.Volume) []Ref {
	var out []Ref
	if s := v.ConfigMap; s != nil {
		out = append(out, itemRefs(path+".configMap", Ref{Kind: ConfigMap, Name: s.Name, Optional: is(s.Optional)}, s.Items)...)
	}
	if s := v.Secret; s != nil {
		out = append(out, itemRefs(path+".secret", Ref{Kind: Secret, Name: s.SecretName, Optional: is(s.Optional)}, s.Items)...)
	}
	if s := v.PersistentVolumeClaim; s != nil {
		out = append(out, Ref{Field: path + ".persistentVolumeClaim.claimName", Kind: Claim, Name: s.ClaimName})
	}
	if v.Ephemeral != nil {
		out = append(out, Ref{Field: path + ".ephemeral", Kind: Claim, Name: pod + "-" + v.Name})
	}
	if v.Projected == nil {
		return out
	}
	for i, s := range v.Projected.Sources {
		path := fmt.Sprintf("%s.projected.sources[%d]", path, i)
		if s := s.ConfigMap; s != nil {
			out = append(out, itemRefs(path+".configMap", Ref{Kind: ConfigMap, Name: s.Name, Optional: is(s.Optional)}, s.Items)...)
		}
		if s := s.Secret; s != nil {
			out = append(out, itemRefs(path+".secret", Ref{Kind: Secret, Name: s.Name, Optional: is(s.Optional)}, s.Items)...)
		}
	}
	return out
}

// itemRefs returns one reference for each key that a volume asks for, or one for the
// object when it takes all.
func itemRefs(path string, whole Ref, items []v1.KeyToPath) []Ref {
	whole.Field = path
	out := append(make([]Ref, 0, 1+len(items)), whole)
	for i, item := range items {
		r := whole
		r.Field, r.Key = fmt.Sprintf("%s.items[%d].key", path, i), item.Key
		out = append(out, r)
	}
	return out
}

func is(b *bool) bool { return b != nil && *b }
