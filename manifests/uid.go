package manifests

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// identity is what the UID of a pod is computed from: everything that determines what runs, but
// not where the manifest was found.
type identity struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        v1.PodSpec        `json:"spec"`
	Refs        []content         `json:"refs,omitempty"`
}

// content is the data of a reference, without any when it is absent.
type content struct {
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Text   map[string]string `json:"text,omitempty"`
	Binary map[string][]byte `json:"binary,omitempty"`
	Claim  *storage          `json:"claim,omitempty"`
}

// storage is the storage of a claim.
type storage struct {
	AccessModes []v1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	Volume      *v1.PersistentVolumeSource      `json:"volume,omitempty"`
}

// content returns the data of a reference in the namespace.
func (s *Set) content(namespace string, r reference) content {
	c := content{Kind: r.kind, Name: r.name}
	switch o := s.objects[object{r.kind, namespace, r.name}].(type) {
	case *v1.ConfigMap:
		c.Text, c.Binary = o.Data, o.BinaryData
	case *v1.Secret:
		c.Binary = o.Data
	case *v1.PersistentVolumeClaim:
		c.Claim = &storage{AccessModes: o.Spec.AccessModes}
		if v, ok := s.PersistentVolume(o.Spec.VolumeName); ok {
			c.Claim.Volume = &v.Spec.PersistentVolumeSource
		}
	}
	return c
}

// uid returns a UUID of the pod's content, of the ConfigMaps and Secrets that it refers to, and
// of the storage of its claims. The pod has its defaults and its priority.
func (s *Set) uid(p *v1.Pod, refs []reference) (types.UID, error) {
	id := identity{
		Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Spec: p.Spec,
		Annotations: map[string]string{},
	}
	for k, v := range p.Annotations {
		if !strings.HasPrefix(k, "kubernetes.io/config.") && !slices.Contains(podspec.InputAnnotations, k) {
			id.Annotations[k] = v
		}
	}
	seen := map[string]bool{}
	for _, r := range refs {
		if seen[r.kind+"/"+r.name] {
			continue
		}
		seen[r.kind+"/"+r.name] = true
		id.Refs = append(id.Refs, s.content(p.Namespace, r))
	}
	b, err := json.Marshal(id)
	if err != nil {
		return "", fmt.Errorf("encoding pod %q: %w", podspec.FullName(p), err)
	}
	return uuid(b), nil
}

// nameUID returns the UID of an object that is identified by its name.
func (r *reader) nameUID(kind, namespace, name string) types.UID {
	return uuid([]byte(kind + "/" + r.orDefault(namespace) + "/" + name))
}

func (r *reader) orDefault(namespace string) string { return cmp.Or(namespace, r.options.Namespace) }

// uuid returns a UUID in the form of version 5, computed from the content.
func uuid(content []byte) types.UID {
	sum := sha256.Sum256(content)
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]))
}
