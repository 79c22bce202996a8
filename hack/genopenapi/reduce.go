package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// document is an OpenAPI document, version 3, as far as it is kept.
type document struct {
	OpenAPI    string          `json:"openapi"`
	Info       json.RawMessage `json:"info"`
	Paths      map[string]path `json:"paths"`
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"` // unchanged: clients merge, validate and explain with them
	} `json:"components"`
}

// path has the operations of a path. Others than these have no kind of their own.
type path struct {
	Parameters []parameter `json:"parameters,omitempty"`
	Get        *operation  `json:"get,omitempty"`
	Put        *operation  `json:"put,omitempty"`
	Post       *operation  `json:"post,omitempty"`
	Delete     *operation  `json:"delete,omitempty"`
	Patch      *operation  `json:"patch,omitempty"`
}

// parameter is a parameter without its description.
type parameter struct {
	In       string          `json:"in"`
	Name     string          `json:"name"`
	Required bool            `json:"required,omitempty"`
	Schema   json.RawMessage `json:"schema"`
}

// operation is an operation with what tells a client the kind of the resource. Responses has only what makes the
// document valid.
type operation struct {
	Parameters  []parameter            `json:"parameters,omitempty"`
	RequestBody *body                  `json:"requestBody,omitempty"`
	Responses   map[string]description `json:"responses"`
	Action      string                 `json:"x-kubernetes-action"`
	Kind        kind                   `json:"x-kubernetes-group-version-kind"`
}

type body struct {
	Content map[string]struct{} `json:"content"`
}

type description struct {
	Description string `json:"description"`
}

// reduce keeps what is served.
func (d *document) reduce(s group) error {
	for name, p := range d.Paths {
		if !isResource(s.path, name) || !p.reduce(s.kinds) {
			delete(d.Paths, name)
			continue
		}
		d.Paths[name] = p
	}
	return d.reduceSchemas(s.kinds)
}

// isResource tells whether a path is that of a resource or of an object, and not of a subresource. From these, "kubectl
// explain" learns the kind of a resource (k8s.io/kubectl/pkg/explain/v2/templates/plaintext.tmpl).
func isResource(group, name string) bool {
	rest, _ := strings.CutPrefix(name, "/"+group+"/")
	rest = strings.TrimPrefix(rest, "namespaces/{namespace}/")
	resource, object, _ := strings.Cut(rest, "/")
	return resource != "" && resource != "watch" && (object == "" || object == "{name}")
}

// reduce tells whether a path has operations on kinds that are served, and keeps only these.
func (p *path) reduce(served []kind) bool {
	found := false
	for _, o := range []**operation{&p.Get, &p.Put, &p.Post, &p.Delete, &p.Patch} {
		if *o == nil || !slices.Contains(served, (*o).Kind) {
			*o = nil
			continue
		}
		found = true
		(*o).Responses = map[string]description{"200": {"OK"}}
		if o == &p.Patch {
			(*o).reducePatch()
			continue
		}
		(*o).Parameters, (*o).RequestBody = nil, nil
	}
	p.Parameters = slices.DeleteFunc(p.Parameters, func(p parameter) bool { return p.In != "path" })
	return found
}

// reducePatch keeps what kubectl reads in the operation that patches a kind. If it has the parameter fieldValidation, the
// server checks the fields of a file and not kubectl (k8s.io/cli-runtime/pkg/resource/query_param_verifier_v3.go). If it
// takes strategic merge patches, "kubectl apply" merges with the schemas (k8s.io/kubectl/pkg/cmd/apply/patcher.go).
func (o *operation) reducePatch() {
	o.Parameters = slices.DeleteFunc(o.Parameters, func(p parameter) bool { return p.Name != "fieldValidation" })
	maps.DeleteFunc(o.RequestBody.Content, func(contentType string, _ struct{}) bool {
		return contentType != "application/strategic-merge-patch+json"
	})
}

// reduceSchemas keeps the schemas of kinds, and those that they refer to.
func (d *document) reduceSchemas(served []kind) error {
	all := d.Components.Schemas
	kept := map[string]json.RawMessage{}
	names, err := find(all, served)
	if err != nil {
		return err
	}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if _, ok := kept[name]; ok {
			continue
		}
		text, ok := all[name]
		if !ok {
			return fmt.Errorf("there is no schema %s", name)
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		names = append(names, references(value)...)
		kept[name] = text
	}
	d.Components.Schemas = kept
	return nil
}

// find returns the names of the schemas of kinds.
func find(schemas map[string]json.RawMessage, kinds []kind) ([]string, error) {
	byKind := map[kind]string{}
	for name, text := range schemas {
		var s struct {
			Kinds []kind `json:"x-kubernetes-group-version-kind"`
		}
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, k := range s.Kinds {
			byKind[k] = name
		}
	}
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		name, ok := byKind[k]
		if !ok {
			return nil, fmt.Errorf("there is no schema of %+v", k)
		}
		names = append(names, name)
	}
	return names, nil
}

// references returns the names of the schemas that a part of a schema refers to.
func references(value any) (names []string) {
	switch v := value.(type) {
	case map[string]any:
		for key, value := range v {
			if ref, ok := value.(string); ok && key == "$ref" {
				names = append(names, strings.TrimPrefix(ref, "#/components/schemas/"))
				continue
			}
			names = append(names, references(value)...)
		}
	case []any:
		for _, value := range v {
			names = append(names, references(value)...)
		}
	}
	return names
}
