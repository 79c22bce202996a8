package manifests

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/supported-fields.md")

// TestDocument compares the documentation with the table. To rewrite it:
//
//	go test ./manifests -run TestDocument -update
func TestDocument(t *testing.T) {
	t.Parallel()
	const path = "../docs/supported-fields.md"
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
		t.Errorf("%s is not what the table says; run go test ./manifests -run TestDocument -update", path)
	}
}

func document() string {
	var b strings.Builder
	b.WriteString(`# Supported fields

What runonce does with each field of a Pod, of the workloads that it turns into pods, and of a Service.
This page is generated from the table that manifests are checked against (` + "`manifests/fields.txt`" + `).
A test compares that table with Kubernetes' API types, so no field is missing.

- **supported**: does what it does in Kubernetes.
- **refused**: a manifest that uses it is refused, with file and line, before anything starts.
- **ignored**: has no effect on a single node without an API server; one warning says so.

An object is supported if its fields are listed. The fields of ` + "`initContainers`" + ` are those of ` + "`containers`" + `,
those of all probes are those of ` + "`livenessProbe`" + `, and those of both lifecycle hooks are those of ` + "`preStop`" + `.
All fields below a refused or ignored field are refused or ignored, too.
`)
	title := "\x00"
	counts := map[class]int{}
	decided := map[string]bool{}
	for _, r := range rows() {
		if below(r, decided) {
			continue
		}
		if r.class != supported {
			decided[r.kind+" "+r.path] = true
		}
		counts[r.class]++
		if r.kind != title {
			title = r.kind
			heading := title
			if heading == "" {
				heading = "Pod"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| field | class | note |\n|---|---|---|\n", heading)
		}
		note := r.note
		if len(r.except) > 0 {
			note += "; supported: `" + strings.Join(r.except, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.path, r.class, note)
	}
	fmt.Fprintf(&b, "\n%d rows: %d supported, %d refused, %d ignored.\n",
		counts[supported]+counts[refused]+counts[ignored], counts[supported], counts[refused], counts[ignored])
	return b.String()
}

// below says whether a field above r is refused or ignored, and so r is, too.
func below(r row, decided map[string]bool) bool {
	for path := r.path; ; {
		i := strings.LastIndex(path, ".")
		if i < 0 {
			return false
		}
		path = path[:i]
		if decided[r.kind+" "+path] {
			return true
		}
	}
}
