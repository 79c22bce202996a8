package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestUpToDate: the program has what this writes now.
func TestUpToDate(t *testing.T) {
	t.Parallel()
	want, err := generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have, err := unpack("../../runtime/serve/apiserver/openapi/documents.zst")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Errorf("the documents, of %d bytes, are not what Kubernetes has, of %d: run make docs", len(have), len(want))
	}
}

// TestWrite: a file that has the documents stays, however they are compressed.
func TestWrite(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "documents.zst")
	if err := write(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	documents, err := unpack(file)
	if err != nil || len(documents) < 100_000 {
		t.Fatalf("%d bytes, %v", len(documents), err)
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	want := z.EncodeAll(documents, nil)
	if err := os.WriteFile(file, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("written again, %v", err)
	}
}

func TestIsResource(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/api/v1/pods":                               true,
		"/api/v1/namespaces":                         true,
		"/api/v1/namespaces/{name}":                  true,
		"/api/v1/namespaces/{namespace}/pods":        true,
		"/api/v1/namespaces/{namespace}/pods/{name}": true,
		"/api/v1/":                           false,
		"/api/v1/namespaces/{name}/finalize": false,
		"/api/v1/namespaces/{namespace}/pods/{name}/log":   false,
		"/api/v1/watch/pods":                               false,
		"/api/v1/watch/namespaces/{namespace}/pods/{name}": false,
	} {
		if got := isResource("api/v1", path); got != want {
			t.Errorf("%s: got %t", path, got)
		}
	}
}

// TestReduce: what is not served is left out, and what is missing is an error.
func TestReduce(t *testing.T) {
	t.Parallel()
	const text = `{
		"paths": {
			"/api/v1/pods": {"get": {"tags": ["x"], "x-kubernetes-group-version-kind": {"version": "v1", "kind": "Pod"}}},
			"/api/v1/bindings": {"post": {"x-kubernetes-group-version-kind": {"version": "v1", "kind": "Binding"}}}},
		"components": {"schemas": {
			"Pod": {"properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}]}}, "x-kubernetes-group-version-kind": [{"version": "v1", "kind": "Pod"}]},
			"Spec": {"properties": {"pod": {"$ref": "#/components/schemas/Pod"}}},
			"Binding": {"$ref": "#/components/schemas/Missing", "x-kubernetes-group-version-kind": [{"version": "v1", "kind": "Binding"}]}}}}`
	reduce := func(names string) (document, error) {
		var d document
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		return d, d.reduce(group{"api/v1", kinds("", names)})
	}
	d, err := reduce("Pod")
	if err != nil {
		t.Fatal(err)
	}
	schemas := make([]string, 0, 2)
	for name := range d.Components.Schemas {
		schemas = append(schemas, name)
	}
	slices.Sort(schemas)
	if want := []string{"Pod", "Spec"}; !slices.Equal(schemas, want) || len(d.Paths) != 1 || d.Paths["/api/v1/pods"].Get == nil {
		t.Errorf("got %v and %v", schemas, d.Paths)
	}
	for _, names := range []string{"Node", "Binding"} {
		if _, err := reduce(names); err == nil {
			t.Errorf("%s: no error", names)
		}
	}
}
