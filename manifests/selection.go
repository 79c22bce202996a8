package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
)

// candidate is a pod that Services may select, or a document with errors that would have pods.
type candidate struct {
	entry  *entry
	pod    *v1.Pod // nil for a document with errors
	name   types.NamespacedName
	labels map[string]string
}

// label is a label of pods in a namespace.
type label struct{ namespace, key, value string }

// selection finds the pods that Services select.
type selection struct {
	with  map[label][]*candidate // in the order of the input
	known map[string][]*candidate

	hints func() *labelNames
}

func (r *reader) newSelection() *selection {
	s := &selection{with: map[label][]*candidate{}, known: map[string][]*candidate{}}
	s.hints = sync.OnceValue(s.names)
	for _, e := range r.entries {
		for _, pe := range e.pods {
			s.add(&candidate{e, pe.pod, podspec.NameOf(pe.pod), pe.pod.Labels})
		}
		if len(e.pods) == 0 && e.failed() && (e.kind == "Pod" || slices.Contains(workloadKinds, e.kind)) {
			s.add(&candidate{e, nil, types.NamespacedName{Namespace: r.orDefault(e.namespace), Name: e.name}, e.podLabels()})
		}
	}
	return s
}

func (s *selection) add(c *candidate) {
	for key, value := range c.labels {
		l := label{c.name.Namespace, key, value}
		s.with[l] = append(s.with[l], c)
	}
}

// podLabels returns the labels of the pods of a document with errors, as far as they can be read.
func (e *entry) podLabels() map[string]string {
	type template struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	var o struct {
		template
		Spec struct {
			Template    template `json:"template"`
			JobTemplate struct {
				Spec struct {
					Template template `json:"template"`
				} `json:"spec"`
			} `json:"jobTemplate"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(e.doc.JSON(), &o) // there are errors about it
	switch e.kind {
	case "Pod":
		return o.Metadata.Labels
	case "CronJob":
		return o.Spec.JobTemplate.Spec.Template.Metadata.Labels
	}
	return o.Spec.Template.Metadata.Labels
}

// selected returns what the Service selects, in the order of the input.
func (s *selection) selected(service *v1.Service) []*candidate {
	if !podspec.HasEndpoints(service) {
		return nil
	}
	id := fmt.Sprintf("%s %q", service.Namespace, service.Spec.Selector) // maps are printed in order
	if found, ok := s.known[id]; ok {
		return found
	}
	found := s.having(service.Namespace, service.Spec.Selector)
	s.known[id] = found
	return found
}

// having returns what has all of the labels.
func (s *selection) having(namespace string, labels map[string]string) []*candidate {
	var fewest []*candidate
	first := true
	for key, value := range labels {
		if list := s.with[label{namespace, key, value}]; first || len(list) < len(fewest) {
			fewest, first = list, false
		}
	}
	return slices.DeleteFunc(slices.Clone(fewest), func(c *candidate) bool {
		for key, value := range labels {
			if got, ok := c.labels[key]; !ok || got != value {
				return true
			}
		}
		return false
	})
}

// labelNames are the labels of the pods, for hints.
type labelNames struct {
	keys       map[string][]string // by namespace, sorted
	values     map[label][]string  // by namespace and key, sorted
	namespaces map[label]string    // the first one, by key and value
}

func (s *selection) names() *labelNames {
	n := &labelNames{map[string][]string{}, map[label][]string{}, map[label]string{}}
	for l := range s.with {
		in := label{namespace: l.namespace, key: l.key}
		if len(n.values[in]) == 0 {
			n.keys[l.namespace] = append(n.keys[l.namespace], l.key)
		}
		n.values[in] = append(n.values[in], l.value)
		anywhere := label{key: l.key, value: l.value}
		if first, ok := n.namespaces[anywhere]; !ok || l.namespace < first {
			n.namespaces[anywhere] = l.namespace
		}
	}
	for _, list := range n.keys {
		slices.Sort(list)
	}
	for _, list := range n.values {
		slices.Sort(list)
	}
	return n
}

// hint says what may be wrong with a selector that selects nothing.
func (s *selection) hint(service *v1.Service) string {
	namespace, labels, names := service.Namespace, service.Spec.Selector, s.hints()
	keys := slices.Sorted(maps.Keys(labels))
	if elsewhere, ok := names.namespaces[label{key: keys[0], value: labels[keys[0]]}]; ok && elsewhere != namespace && len(s.having(elsewhere, labels)) > 0 {
		return fmt.Sprintf("there are such pods in namespace %s, this Service is in %s", elsewhere, namespace)
	}
	for _, key := range keys {
		if len(s.with[label{namespace, key, labels[key]}]) > 0 {
			continue
		}
		values := names.values[label{namespace: namespace, key: key}]
		if near := decode.Nearest(labels[key], values); near != "" {
			return fmt.Sprintf("did you mean %s: %s?", key, near)
		}
		if near := decode.Nearest(key, names.keys[namespace]); near != "" && len(values) == 0 {
			return fmt.Sprintf("did you mean %s: %s?", near, labels[key])
		}
		return fmt.Sprintf("no pod in namespace %s has the label %s: %s", namespace, key, labels[key])
	}
	return "there is a pod for each of the labels, but none has all of them"
}
