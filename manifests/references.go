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

// references returns the references of a pod, in the order of its fields.
func references(p *v1.Pod) []reference {
	l := make(referenceList, 0, len(p.Spec.Volumes))
	for i := range p.Spec.InitContainers {
		l.addEnv(fmt.Sprintf("spec.initContainers[%d]", i), &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		l.addEnv(fmt.Sprintf("spec.containers[%d]", i), &p.Spec.Containers[i])
	}
	for i := range p.Spec.Volumes {
		l.addVolume(fmt.Sprintf("spec.volumes[%d]", i), p.Name, &p.Spec.Volumes[i])
	}
	return l
}

type referenceList []reference

func (l *referenceList) add(r reference, optional *bool) {
	r.optional = optional != nil && *optional
	*l = append(*l, r)
}

// addItems adds a reference to the object, and one to each key that a volume lists.
func (l *referenceList) addItems(r reference, optional *bool, items []v1.KeyToPath) {
	l.add(r, optional)
	path := r.field
	for i, item := range items {
		r.field, r.key = fmt.Sprintf("%s.items[%d].key", path, i), item.Key
		l.add(r, optional)
	}
}

func (l *referenceList) addEnv(path string, c *v1.Container) {
	for i, e := range c.EnvFrom {
		path := fmt.Sprintf("%s.envFrom[%d]", path, i)
		if r := e.ConfigMapRef; r != nil {
			l.add(reference{field: path + ".configMapRef.name", kind: kindConfigMap, name: r.Name}, r.Optional)
		}
		if r := e.SecretRef; r != nil {
			l.add(reference{field: path + ".secretRef.name", kind: kindSecret, name: r.Name}, r.Optional)
		}
	}
	for i, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		path := fmt.Sprintf("%s.env[%d].valueFrom", path, i)
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			l.add(reference{field: path + ".configMapKeyRef", kind: kindConfigMap, name: r.Name, key: r.Key}, r.Optional)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			l.add(reference{field: path + ".secretKeyRef", kind: kindSecret, name: r.Name, key: r.Key}, r.Optional)
		}
	}
}

func (l *referenceList) addVolume(path, pod string, v *v1.Volume) {
	if s := v.ConfigMap; s != nil {
		l.addItems(reference{field: path + ".configMap", kind: kindConfigMap, name: s.Name}, s.Optional, s.Items)
	}
	if s := v.Secret; s != nil {
		l.addItems(reference{field: path + ".secret", kind: kindSecret, name: s.SecretName}, s.Optional, s.Items)
	}
	if s := v.PersistentVolumeClaim; s != nil {
		l.add(reference{field: path + ".persistentVolumeClaim.claimName", kind: kindClaim, name: s.ClaimName}, nil)
	}
	if v.Ephemeral != nil {
		l.add(reference{field: path + ".ephemeral", kind: kindClaim, name: pod + "-" + v.Name}, nil)
	}
	if v.Projected == nil {
		return
	}
	for i, s := range v.Projected.Sources {
		path := fmt.Sprintf("%s.projected.sources[%d]", path, i)
		if s := s.ConfigMap; s != nil {
			l.addItems(reference{field: path + ".configMap", kind: kindConfigMap, name: s.Name}, s.Optional, s.Items)
		}
		if s := s.Secret; s != nil {
			l.addItems(reference{field: path + ".secret", kind: kindSecret, name: s.Name}, s.Optional, s.Items)
		}
	}
}

// checkRefs rejects references to what is not in the input or has errors. An API server might
// still get it later; here nobody will create it.
func (r *reader) checkRefs(e *entry, pe podEntry, refs []reference) {
	seen := map[object]bool{} // missing or with errors
	for _, ref := range refs {
		id, field := object{ref.kind, pe.pod.Namespace, ref.name}, pe.prefix+ref.field
		ok := r.set.objects[id] != nil
		switch {
		case ref.name == "", seen[id]:
		case !ok && r.checkBroken(e, field, id):
			seen[id] = true
		case ref.optional:
		case !ok && r.options.Cluster: // it may be there
		case !ok:
			e.fail(field, fmt.Sprintf("%s %q is not in the input", id.kind, id.name), r.similar(id, ref.kind != kindClaim))
			seen[id] = true
		case ref.key != "" && !r.set.hasKey(id, ref.key):
			e.fail(field, fmt.Sprintf("%s %q has no key %q", id.kind, id.name, ref.key), decode.DidYouMean(ref.key, r.set.keysOf(id)))
		}
	}
}

// checkPullSecrets warns of pull secrets without credentials: the kubelet pulls without them
// (getPullSecretsForPod of pkg/kubelet), and the image may be present anyway.
func (r *reader) checkPullSecrets(e *entry, pe podEntry) {
	for i, ref := range pe.pod.Spec.ImagePullSecrets {
		field := fmt.Sprintf("%sspec.imagePullSecrets[%d].name", pe.prefix, i)
		id := object{kindSecret, pe.pod.Namespace, ref.Name}
		s, ok := r.set.Secret(id.namespace, id.name)
		switch {
		case ref.Name == "", r.checkBroken(e, field, id):
		case !ok:
			e.warn(field, fmt.Sprintf("Secret %q is not in the input: images are pulled without it", ref.Name), r.similar(id, false))
		case s.Type != v1.SecretTypeDockerConfigJson && s.Type != v1.SecretTypeDockercfg:
			e.warn(field, fmt.Sprintf("Secret %q is of type %s, which has no registry credentials", ref.Name, s.Type), "use type "+string(v1.SecretTypeDockerConfigJson))
		}
	}
}

// hasKey says whether an object has the key.
func (s *Set) hasKey(id object, key string) bool {
	switch o := s.objects[id].(type) {
	case *v1.ConfigMap:
		_, text := o.Data[key]
		_, binary := o.BinaryData[key]
		return text || binary
	case *v1.Secret:
		_, ok := o.Data[key]
		return ok
	}
	return false
}

// keysOf returns the keys of an object for a hint, none if they are too many for one: they would be
// sorted for each key that is missing.
func (s *Set) keysOf(id object) []string {
	switch o := s.objects[id].(type) {
	case *v1.ConfigMap:
		if len(o.Data)+len(o.BinaryData) <= decode.MaxNames {
			return append(slices.Sorted(maps.Keys(o.Data)), slices.Sorted(maps.Keys(o.BinaryData))...)
		}
	case *v1.Secret:
		if len(o.Data) <= decode.MaxNames {
			return slices.Sorted(maps.Keys(o.Data))
		}
	}
	return nil
}

// nameIndex has the names of the objects, for hints about those that are missing.
type nameIndex struct {
	of         map[object][]string // sorted, by kind and namespace
	namespaces map[object]string   // the first one, by kind and name
}

func (s *Set) names() *nameIndex {
	n := &nameIndex{map[object][]string{}, map[object]string{}}
	for id := range s.objects {
		in := object{kind: id.kind, namespace: id.namespace}
		n.of[in] = append(n.of[in], id.name)
		called := object{kind: id.kind, name: id.name}
		if first, ok := n.namespaces[called]; !ok || id.namespace < first {
			n.namespaces[called] = id.namespace
		}
	}
	for _, list := range n.of {
		slices.Sort(list)
	}
	return n
}

// similar returns a hint about an object that is not in the input: another one that may be
// meant, or else what to do.
func (r *reader) similar(missing object, canBeOptional bool) string {
	if namespace, ok := r.names().namespaces[object{kind: missing.kind, name: missing.name}]; ok {
		return fmt.Sprintf("there is one in namespace %s, this pod is in %s", namespace, missing.namespace)
	}
	if hint := decode.DidYouMean(missing.name, r.names().of[object{kind: missing.kind, namespace: missing.namespace}]); hint != "" {
		return hint
	}
	if canBeOptional {
		return "add it to the input, or mark the reference optional"
	}
	return "add it to the input"
}
