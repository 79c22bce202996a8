package fields

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/supported-fields.md anew")

// TestDocument holds the documentation to the table. To write it anew:
//
//	go test ./manifests/fields -run TestDocument -update
func TestDocument(t *testing.T) {
	t.Parallel()
	const path = "../../docs/supported-fields.md"
	want := document()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the table says; run go test ./manifests/fields -run TestDocument -update", path)
	}
}

func document() string {
	var b strings.Builder
	b.WriteString(`# Supported fields

What runonce does with each field of a Pod, and of the workloads that it turns into pods.
This page is generated from the table that the reader of manifests works by
(` + "`manifests/fields`" + `); a test holds that table to Kubernetes' API types, so no field is missing.

- **supported**: does what it does in Kubernetes.
- **refused**: a manifest that uses it is refused, with file and line, before anything starts.
- **meaningless**: has no effect on a single node without an API server; one warning says so.

The fields of ` + "`initContainers`" + ` are those of ` + "`containers`" + `; those of the three probes are alike, and
so are those of the two lifecycle hooks. What lies below a refused or meaningless field shares its fate.
`)
	title := "\x00"
	counts := map[Class]int{}
	decided := map[string]bool{}
	for _, r := range Table() {
		if below(r, decided) {
			continue
		}
		if r.Class != Supported {
			decided[r.Kind+" "+r.Path] = true
		}
		counts[r.Class]++
		if r.Kind != title {
			title = r.Kind
			heading := title
			if heading == "" {
				heading = "Pod"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| field | class | note |\n|---|---|---|\n", heading)
		}
		note := r.Note
		if len(r.Except) > 0 {
			note += "; supported: `" + strings.Join(r.Except, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.Path, r.Class, note)
	}
	fmt.Fprintf(&b, "\n%d rows: %d supported, %d refused, %d meaningless.\n",
		counts[Supported]+counts[Refused]+counts[Meaningless], counts[Supported], counts[Refused], counts[Meaningless])
	return b.String()
}

// below says whether a field above r is refused or meaningless, which decides r too.
func below(r Row, decided map[string]bool) bool {
	for path := r.Path; ; {
		i := strings.LastIndex(path, ".")
		if i < 0 {
			return false
		}
		path = path[:i]
		if decided[r.Kind+" "+path] {
			return true
		}
	}
}
