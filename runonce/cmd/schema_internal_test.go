package cmd

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

// TestSchemas: docs/schemas has the JSON Schema of every document, by its kind. -update writes
// them.
func TestSchemas(t *testing.T) {
	t.Parallel()
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, AllowAdditionalProperties: true, Mapper: schemaOf}
	for _, dir := range []string{"admit", "internal/podevent", "internal/podusage", "manifests", "runonce"} {
		// It joins both: the dots of the second remove the last elements of the first.
		if err := r.AddGoComments("github.com/runonce/runonce/runonce/cmd", "../../"+dir); err != nil {
			t.Fatal(err)
		}
	}
	for kind, document := range map[string]any{
		"Report": report.Report{}, "Plan": report.Plan{}, "Validation": manifests.Validation{},
		"Pods": report.Pods{}, "Events": report.Events{}, "Usage": report.Usage{}, "Images": imageList{}, "ImagePull": imagePulls{}, "Examination": examination{}, "Version": versions{},
	} {
		s := r.Reflect(document)
		s.Title = kind
		for field, value := range map[string]string{"kind": kind, "apiVersion": report.APIVersion} {
			if p, ok := s.Properties.Get(field); ok {
				p.Const, p.Description = value, ""
			}
		}
		got, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		checkSchema(t, filepath.Join("../../docs/schemas", strings.ToLower(kind)+".json"), append(got, '\n'))
	}
}

func checkSchema(t *testing.T, path string, got []byte) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is out of date, run make docs (-want +got):\n%s", path, cmp.Diff(string(want), string(got)))
	}
}

// schemaOf returns the schema of a type whose JSON is not that of its Go type.
func schemaOf(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[v1.PodStatus]():
		return &jsonschema.Schema{Type: "object"}
	case reflect.TypeFor[resource.Quantity]():
		return &jsonschema.Schema{Type: "string"}
	case reflect.TypeFor[v1.ResourceList]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{Type: "string"}}
	case reflect.TypeFor[metav1.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[runonce.Outcome]():
		return oneOf(runonce.Running, runonce.Ready, runonce.Succeeded, runonce.Failed, runonce.TimedOut,
			runonce.Rejected, runonce.Preempted, runonce.Invalid, runonce.Canceled, runonce.Removed)
	case reflect.TypeFor[admit.Verdict]():
		return oneOf(admit.Admitted, admit.Rejected, admit.Preempted, admit.Queued)
	}
	return nil
}

func oneOf[T ~string](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}
