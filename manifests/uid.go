package manifests

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
)

// identity is what the UID of a pod is made from: all that decides what runs, and
// nothing about where the manifest was found.
type identity struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        v1.PodSpec        `json:"spec"`
	Refs        []content         `json:"refs,omitempty"`
}

// content is the data behind a reference; both maps are nil when it is absent.
type content struct {
	Kind   string            `json:"kind"`
	Name   string            `json:"name"`
	Text   map[string]string `json:"text,omitempty"`
	Binary map[string][]byte `json:"binary,omitempty"`
	Claim  *storage          `json:"claim,omitempty"`
}

// storage is what a claim stands for.
type storage struct {
	AccessModes []v1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	Volume      *v1.PersistentVolumeSource      `json:"volume,omitempty"`
}

func (s *Set) storage(c *v1.PersistentVolumeClaim) *storage {
	out := &storage{AccessModes: c.Spec.AccessModes}
	if v, ok := s.volumes[c.Spec.VolumeName]; ok {
		out.Volume = &v.Spec.PersistentVolumeSource
	}
	return out
}

// uid returns a name-based UUID of the pod's content, of the ConfigMaps and Secrets that
// it refers to, and of where its claims are kept. The pod has its defaults and its priority.
func (s *Set) uid(p *v1.Pod) (types.UID, error) {
	id := identity{
		Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Spec: p.Spec,
		Annotations: map[string]string{},
	}
	for k, v := range p.Annotations {
		if !strings.HasPrefix(k, "kubernetes.io/config.") && k != podspec.AnnotationSource && k != podspec.AnnotationJob {
			id.Annotations[k] = v
		}
	}
	seen := map[string]bool{}
	for _, r := range references(p) {
		if seen[r.kind+"/"+r.name] {
			continue
		}
		seen[r.kind+"/"+r.name] = true
		c := content{Kind: r.kind, Name: r.name}
		if o, ok := s.configMaps[key{p.Namespace, r.name}]; ok && r.kind == kindConfigMap {
			c.Text, c.Binary = o.Data, o.BinaryData
		}
		if o, ok := s.secrets[key{p.Namespace, r.name}]; ok && r.kind == kindSecret {
			c.Binary = o.Data
		}
		if o, ok := s.claims[key{p.Namespace, r.name}]; ok && r.kind == kindClaim {
			c.Claim = s.storage(o)
		}
		id.Refs = append(id.Refs, c)
	}
	b, err := json.Marshal(id)
	if err != nil {
		return "", fmt.Errorf("encoding pod %q: %w", p.Namespace+"/"+p.Name, err)
	}
	return uuid(b), nil
}

// nameUID returns the UID of an object that is known by its name alone.
func nameUID(kind, namespace, name string) types.UID {
	return uuid([]byte(kind + "/" + orDefault(namespace) + "/" + name))
}

func orDefault(namespace string) string { return cmp.Or(namespace, v1.NamespaceDefault) }

// uuid makes a UUID of the shape of version 5 from the content.
func uuid(content []byte) types.UID {
	sum := sha256.Sum256(content)
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x50
	u[8] = u[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]))
}
