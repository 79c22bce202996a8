package manifests

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/manifests/decode"
	"github.com/runonce/runonce/manifests/refs"
)

// checkRefs faults references to what is not in the input, or is there with errors. An
// API server might still create it later; here nobody will.
func (r *reader) checkRefs(e *entry, pe podEntry) {
	said := map[string]bool{}
	for _, ref := range refs.Of(pe.pod) {
		id := object{ref.Kind, pe.pod.Namespace, ref.Name}
		keys, ok := r.set.keysOf(ref.Kind, key{id.namespace, id.name})
		switch {
		case ref.Name == "", said[ref.Kind+"/"+ref.Name]:
		case !ok && r.broken[id]:
			e.fault(pe.prefix+ref.Field, fmt.Sprintf("%s %q has errors of its own", ref.Kind, ref.Name), "")
			said[ref.Kind+"/"+ref.Name] = true
		case ref.Optional:
		case !ok:
			e.fault(pe.prefix+ref.Field, fmt.Sprintf("%s %q is not in the input", ref.Kind, ref.Name), r.set.elsewhere(ref, id.namespace))
			said[ref.Kind+"/"+ref.Name] = true
		case ref.Key != "" && !slices.Contains(keys, ref.Key):
			hint := ""
			if near := decode.Nearest(ref.Key, keys); near != "" {
				hint = "did you mean " + near + "?"
			}
			e.fault(pe.prefix+ref.Field, fmt.Sprintf("%s %q has no key %q", ref.Kind, ref.Name, ref.Key), hint)
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
		case r.broken[object{refs.Secret, id.namespace, id.name}]:
			e.fault(path, fmt.Sprintf("Secret %q has errors of its own", ref.Name), "")
		case !ok:
			hint := r.set.elsewhere(refs.Ref{Kind: refs.Secret, Name: ref.Name, Optional: true}, id.namespace)
			e.warn(path, fmt.Sprintf("Secret %q is not in the input: images are pulled without it", ref.Name), hint)
		case s.Type != v1.SecretTypeDockerConfigJson && s.Type != v1.SecretTypeDockercfg:
			e.warn(path, fmt.Sprintf("Secret %q is of type %s, which holds no registry credentials", ref.Name, s.Type), "make it one of type "+string(v1.SecretTypeDockerConfigJson))
		}
	}
}

// keysOf returns the keys of an object, and whether it is in the input.
func (s *Set) keysOf(kind string, k key) ([]string, bool) {
	switch kind {
	case refs.ConfigMap:
		if o, ok := s.configMaps[k]; ok {
			return append(slices.Sorted(maps.Keys(o.Data)), slices.Sorted(maps.Keys(o.BinaryData))...), true
		}
	case refs.Secret:
		if o, ok := s.secrets[k]; ok {
			return slices.Sorted(maps.Keys(o.Data)), true
		}
	case refs.Claim:
		_, ok := s.claims[k]
		return nil, ok
	}
	return nil, false
}

// all returns where the objects of a kind are.
func (s *Set) all(kind string) []key {
	switch kind {
	case refs.ConfigMap:
		return slices.Collect(maps.Keys(s.configMaps))
	case refs.Secret:
		return slices.Collect(maps.Keys(s.secrets))
	}
	return slices.Collect(maps.Keys(s.claims))
}

// elsewhere hints at an object of the same kind that may be the one meant.
func (s *Set) elsewhere(r refs.Ref, namespace string) string {
	var names, namespaces []string
	for _, k := range s.all(r.Kind) {
		if k.namespace == namespace {
			names = append(names, k.name)
		}
		if k.name == r.Name {
			namespaces = append(namespaces, k.namespace)
		}
	}
	if len(namespaces) > 0 {
		return fmt.Sprintf("there is one in namespace %s, this pod is in %s", slices.Min(namespaces), namespace)
	}
	slices.Sort(names)
	if near := decode.Nearest(r.Name, names); near != "" {
		return "did you mean " + near + "?"
	}
	if r.Kind == refs.Claim || r.Optional {
		return "add it to the input"
	}
	return "add it to the input, or mark the reference optional"
}
