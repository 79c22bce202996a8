package cmd_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas are those of docs/schemas, by file name.
var schemas = sync.OnceValue(func() map[string]*jsonschema.Schema {
	found := map[string]*jsonschema.Schema{}
	files, err := filepath.Glob("../../docs/schemas/*.json")
	if err != nil {
		return nil
	}
	for _, path := range files {
		if s, err := jsonschema.NewCompiler().Compile(path); err == nil {
			found[strings.TrimSuffix(filepath.Base(path), ".json")] = s
		}
	}
	return found
})

// checkDocument: with -o json a command prints one document, whatever happens, and docs/schemas
// describes it.
func checkDocument(t *testing.T, args []string, stdout string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
	if err != nil {
		t.Errorf("%v: not one JSON document: %v\n%s", args, err, stdout)
		return
	}
	var document struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal([]byte(stdout), &document); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	schema := schemas()[strings.ToLower(document.Kind)]
	if schema == nil {
		t.Errorf("%v: no schema of kind %q", args, document.Kind)
		return
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}
