package manifests

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
)

// reference is a pod's reference to another object of its namespace, or to one key of it.
type reference struct {
	field    string // the path in the pod
	kind     string // kindConfigMap, kindSecret or kindClaim
	name     string
	key      string // "" for the whole object
	optional bool   // the pod runs without
}

// The kinds that pods refer to.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindClaim     = "PersistentVolumeClaim"
)

// references returns the references of a pod in the order in which they are written.
func references(p *v1.Pod) []reference {
	out := make([]reference, 0, len(p.Spec.Volumes))
	for i := range p.Spec.InitContainers {
		out = append(out, envRefs(fmt.Sprintf("spec.initContainers[%d]", i), &p.Spec.InitContainers[i])...)
	}
	for i := range p.Spec.Containers {
		out = append(out, envRefs(fmt.Sprintf("spec.containers[%d]", i), &p.Spec.Containers[i])...)
	}
	for i := range p.Spec.Volumes {
		out = append(out, volumeRefs(fmt.Sprintf("spec.volumes[%d]", i), p.Name, &p.Spec.Volumes[i])...)
	}
	return out
}

func envRefs(path string, c *v1.Container) []reference {
	var out []reference
	for i, e := range c.EnvFrom {
		if r := e.ConfigMapRef; r != nil {
			out = append(out, reference{fmt.Sprintf("%s.envFrom[%d].configMapRef.name", path, i), kindConfigMap, r.Name, "", isTrue(r.Optional)})
		}
		if r := e.SecretRef; r != nil {
			out = append(out, reference{fmt.Sprintf("%s.envFrom[%d].secretRef.name", path, i), kindSecret, r.Name, "", isTrue(r.Optional)})
		}
	}
	for i, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			out = append(out, reference{fmt.Sprintf("%s.env[%d].valueFrom.configMapKeyRef", path, i), kindConfigMap, r.Name, r.Key, isTrue(r.Optional)})
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			out = append(out, reference{fmt.Sprintf("%s.env[%d].valueFrom.secretKeyRef", path, i), kindSecret, r.Name, r.Key, isTrue(r.Optional)})
		}
	}
	return out
}

func volumeRefs(path, pod string, v *v1.Volume) []reference {
	var out []reference
	if s := v.ConfigMap; s != nil {
		out = append(out, itemRefs(path+".configMap", reference{kind: kindConfigMap, name: s.Name, optional: isTrue(s.Optional)}, s.Items)...)
	}
	if s := v.Secret; s != nil {
		out = append(out, itemRefs(path+".secret", reference{kind: kindSecret, name: s.SecretName, optional: isTrue(s.Optional)}, s.Items)...)
	}
	if s := v.PersistentVolumeClaim; s != nil {
		out = append(out, reference{field: path + ".persistentVolumeClaim.claimName", kind: kindClaim, name: s.ClaimName})
	}
	if v.Ephemeral != nil {
		out = append(out, reference{field: path + ".ephemeral", kind: kindClaim, name: pod + "-" + v.Name})
	}
	if v.Projected == nil {
		return out
	}
	for i, s := range v.Projected.Sources {
		path := fmt.Sprintf("%s.projected.sources[%d]", path, i)
		if s := s.ConfigMap; s != nil {
			out = append(out, itemRefs(path+".configMap", reference{kind: kindConfigMap, name: s.Name, optional: isTrue(s.Optional)}, s.Items)...)
		}
		if s := s.Secret; s != nil {
			out = append(out, itemRefs(path+".secret", reference{kind: kindSecret, name: s.Name, optional: isTrue(s.Optional)}, s.Items)...)
		}
	}
	return out
}

// itemRefs returns one reference for each key that a volume asks for, or one for the
// object when it takes all.
func itemRefs(path string, whole reference, items []v1.KeyToPath) []reference {
	whole.field = path
	out := append(make([]reference, 0, 1+len(items)), whole)
	for i, item := range items {
		r := whole
		r.field, r.key = fmt.Sprintf("%s.items[%d].key", path, i), item.Key
		out = append(out, r)
	}
	return out
}

func isTrue(b *bool) bool { return b != nil && *b }

// checkRefs refuses references to what is not in the input, or is there with errors. An
// API server might still create it later; here nobody will.
func (r *reader) checkRefs(e *entry, pe podEntry) {
	said := map[string]bool{}
	for _, ref := range references(pe.pod) {
		id := object{ref.kind, pe.pod.Namespace, ref.name}
		keys, ok := r.set.keysOf(ref.kind, key{id.namespace, id.name})
		switch {
		case ref.name == "", said[ref.kind+"/"+ref.name]:
		case !ok && r.broken[id]:
			e.fail(pe.prefix+ref.field, fmt.Sprintf("%s %q has errors", ref.kind, ref.name), "")
			said[ref.kind+"/"+ref.name] = true
		case ref.optional:
		case !ok:
			e.fail(pe.prefix+ref.field, fmt.Sprintf("%s %q is not in the input", ref.kind, ref.name), r.set.elsewhere(ref, id.namespace))
			said[ref.kind+"/"+ref.name] = true
		case ref.key != "" && !slices.Contains(keys, ref.key):
			e.fail(pe.prefix+ref.field, fmt.Sprintf("%s %q has no key %q", ref.kind, ref.name, ref.key), decode.DidYouMean(ref.key, keys))
		}
	}
}

// checkPullSecrets warns of pull secrets that give no credentials: the kubelet pulls
// without them (getPullSecretsForPod of pkg/kubelet), and the image may be there anyway.
func (r *reader) checkPullSecrets(e *entry, pe podEntry) {
	for i, ref := range pe.pod.Spec.ImagePullSecrets {
		path := fmt.Sprintf("%sspec.imagePullSecrets[%d].name", pe.prefix, i)
		id := key{pe.pod.Namespace, ref.Name}
		s, ok := r.set.secrets[id]
		switch {
		case ref.Name == "":
		case r.broken[object{kindSecret, id.namespace, id.name}]:
			e.fail(path, fmt.Sprintf("Secret %q has errors", ref.Name), "")
		case !ok:
			hint := r.set.elsewhere(reference{kind: kindSecret, name: ref.Name, optional: true}, id.namespace)
			e.warn(path, fmt.Sprintf("Secret %q is not in the input: images are pulled without it", ref.Name), hint)
		case s.Type != v1.SecretTypeDockerConfigJson && s.Type != v1.SecretTypeDockercfg:
			e.warn(path, fmt.Sprintf("Secret %q is of type %s, which has no registry credentials", ref.Name, s.Type), "use type "+string(v1.SecretTypeDockerConfigJson))
		}
	}
}

// keysOf returns the keys of an object, and whether it is in the input.
func (s *Set) keysOf(kind string, k key) ([]string, bool) {
	switch kind {
	case kindConfigMap:
		if o, ok := s.configMaps[k]; ok {
			return append(slices.Sorted(maps.Keys(o.Data)), slices.Sorted(maps.Keys(o.BinaryData))...), true
		}
	case kindSecret:
		if o, ok := s.secrets[k]; ok {
			return slices.Sorted(maps.Keys(o.Data)), true
		}
	case kindClaim:
		_, ok := s.claims[k]
		return nil, ok
	}
	return nil, false
}

// all returns where the objects of a kind are.
func (s *Set) all(kind string) []key {
	switch kind {
	case kindConfigMap:
		return slices.Collect(maps.Keys(s.configMaps))
	case kindSecret:
		return slices.Collect(maps.Keys(s.secrets))
	}
	return slices.Collect(maps.Keys(s.claims))
}

// elsewhere hints at an object of the same kind that may be the one meant.
func (s *Set) elsewhere(r reference, namespace string) string {
	var names, namespaces []string
	for _, k := range s.all(r.kind) {
		if k.namespace == namespace {
			names = append(names, k.name)
		}
		if k.name == r.name {
			namespaces = append(namespaces, k.namespace)
		}
	}
	if len(namespaces) > 0 {
		return fmt.Sprintf("there is one in namespace %s, this pod is in %s", slices.Min(namespaces), namespace)
	}
	slices.Sort(names)
	if hint := decode.DidYouMean(r.name, names); hint != "" {
		return hint
	}
	if r.kind == kindClaim || r.optional {
		return "add it to the input"
	}
	return "add it to the input, or mark the reference optional"
}
