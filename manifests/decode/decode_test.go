package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sigsyaml "sigs.k8s.io/yaml"
)

// split returns the documents of a file as JSON, then its problems as text.
func split(in string) (docs, problems []string) {
	ds, fs := Split("f", []byte(in))
	for _, d := range ds {
		docs = append(docs, string(d.JSON()))
	}
	for _, f := range fs {
		problems = append(problems, f.String())
	}
	return docs, problems
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		in       string
		docs     []string
		problems []string
	}{
		{"empty", "", nil, nil},
		{"comments only", "# a\n---\n# b\n", nil, nil},
		{"block", "a: 1\nb: [x, \"2\"]\n", []string{`{"a":1,"b":["x","2"]}`}, nil},
		{"several documents", "---\na: 1\n---\n---\nb: 2\n...\n---\nc: 3\n", []string{`{"a":1}`, `{"b":2}`, `{"c":3}`}, nil},
		{"marker with content", "--- {a: 1}\n--- # note\nb: 2\n", []string{`{"a":1}`, `{"b":2}`}, nil},
		{"marker inside a block", "a: |\n  ---\n  x\n", []string{`{"a":"---\nx\n"}`}, nil},
		{"directive", "%YAML 1.1\n---\na: 1\n", []string{`{"a":1}`}, nil},
		{"byte order mark and CRLF", "\xef\xbb\xbfa: 1\r\nb: x\r\n---\r\nc: 2\r\n", []string{`{"a":1,"b":"x"}`, `{"c":2}`}, nil},
		{"KYAML", "---\n{\n  a: \"x\", # note\n  b: [\n    1,\n  ],\n}\n", []string{`{"a":"x","b":[1]}`}, nil},
		{"anchors", "a: &x {k: 1}\nb: *x\n", []string{`{"a":{"k":1},"b":{"k":1}}`}, nil},
		{"merge keys", "base: &b {k: 1, l: 2}\na: {<<: *b, k: 3}\n", []string{`{"base":{"k":1,"l":2},"a":{"k":3,"l":2}}`}, nil},
		{"merge of several", "a: &a {k: 1}\nb: &b {k: 2, l: 2}\nc: {<<: [*a, *b]}\n", []string{`{"a":{"k":1},"b":{"k":2,"l":2},"c":{"k":1,"l":2}}`}, nil},
		{"tags", "a: !!str 1\nb: !!int \"2\"\nc: !!binary aGk=\nd: !x y\n", []string{`{"a":"1","b":2,"c":"hi","d":"y"}`}, nil},
		{"JSON in a row", "{\"a\":1}\n{\"b\":\"\\ud83d\\ude00\"}{\"c\":null}", []string{`{"a":1}`, `{"b":"😀"}`, `{"c":null}`}, nil},
		{"JSON with tabs", "{\n\t\"a\":\t1\n}\n", []string{`{"a":1}`}, nil},
		{"JSON numbers as written", `{"a":1.0,"b":12345678901234567890123}`, []string{`{"a":1.0,"b":12345678901234567890123}`}, nil},
		{"list", "kind: List\nitems:\n- {a: 1}\n- {kind: List, items: [{b: 2}]}\n", []string{`{"a":1}`, `{"b":2}`}, nil},
		{"typed list", "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}}]\n", []string{`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`}, nil},
		{"list with another field", "kind: List\nitem: []\n", nil, []string{"f:2: item: unknown field"}},
		{"twice", "a: 1\nb: 2\na: 3\n", []string{`{"a":1,"b":2,"a":3}`}, []string{"f:3: a: given twice; first on line 1 (keep one of the two)"}},
		{"begins again", "apiVersion: a\nkind: b\napiVersion: c\nkind: d\n", []string{`{"apiVersion":"a","kind":"b","apiVersion":"c","kind":"d"}`}, []string{
			"f:3: apiVersion: given twice; first on line 1 (is a line with --- missing above it?)",
		}},
		{"invisible", "a: 1\n\u00a0 b: 2: 3\n", nil, []string{
			"f:2: not valid YAML: mapping values are not allowed in this context (contains the invisible character U+00A0: retype the text)",
		}},
		{"twice in JSON", "{\"a\":1,\n\"a\":2}", []string{`{"a":1,"a":2}`}, []string{"f:2: a: given twice; first on line 1 (keep one of the two)"}},
		{"second of three is broken", "a: 1\n---\nb: [\n---\nc: 3\n", []string{`{"a":1}`, `{"c":3}`}, []string{"f:3: not valid YAML: did not find expected node content"}},
		{"tab", "a:\n\tb: 1\n", nil, []string{"f:2: not valid YAML: found character that cannot start any token (indent with spaces, not tabs)"}},
		{"colon", "a: b: c\n", nil, []string{"f:1: not valid YAML: mapping values are not allowed in this context (quote a value that contains \": \", and check the indentation)"}},
		{"template block", "a: 1\n{% if x %}\nb: 2\n", nil, []string{"f:2: not valid YAML: found character that cannot start any token (looks like an unrendered template: {% %})"}},
		{"null key", "~: 1\n", nil, []string{"f:1: ~ cannot be a key (quote it)"}},
		{"conflict", "a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> x\n", nil, []string{"f:2: not valid YAML: could not find expected ':' (contains merge conflict markers)"}},
		{"no colon", "a: 1\nb\nc: 2\n", nil, []string{"f:2: not valid YAML: could not find expected ':' (a key needs a colon and a space after it; check the line above, too)"}},
		{"open quote", "a: \"b\nc: d\n", nil, []string{"f:3: not valid YAML: found unexpected end of stream (a quote or a bracket is not closed)"}},
		{"indentation", "a:\n  b: 1\n c: 2\n", nil, []string{"f:2: not valid YAML: did not find expected key (check the indentation of this line and those around it)"}},
		{"outdented", "  a: 1\nb: 2\n", []string{`{"a":1}`}, []string{"f:1: not valid YAML: did not find expected <document start> (a document begins with ---; check the indentation and the end of the document above)"}},
		{"dash", "a:\n-name: c\n image: x\n", nil, []string{"f:3: not valid YAML: mapping values are not allowed in this context (an item needs a space after its dash: \"- name\")"}},
		{"binary", "\x89PNG\x00", nil, []string{"f: binary data, not a manifest"}},
		{"unknown anchor", "b: 1\na: *x\n", nil, []string{"f:2: not valid YAML: unknown anchor 'x' referenced"}},
		{"anchor in itself", "a: &x [*x]\n", nil, []string{`f:1: a[0]: anchor "x" contains itself`}},
		{"infinity", "a: .inf\n", nil, []string{"f:1: a: .inf is not a number in JSON (quote it if it is text)"}},
		{"web page", "\n<!DOCTYPE html>\n", nil, []string{"f: an HTML or XML page, not a manifest"}},
		{"gzip", "\x1f\x8b\x08\x00", nil, []string{"f: compressed data (decompress it first)"}},
		{"UTF-16", "\xff\xfea\x00", nil, []string{"f: UTF-16 text (save it as UTF-8)"}},
		{"Latin 1", "a: 1\nb: \xe9\n", nil, []string{"f:2: not UTF-8 text (save it as UTF-8)"}},
		{"NUL", "a: 1\nb: \x00\n", nil, []string{"f:2: contains a NUL byte, so it is not text"}},
		{"version of YAML", "%YAML 1.1\n---\na: 1\n", []string{`{"a":1}`}, nil},
		{
			"other version of YAML", "%YAML 1.2\n---\na: 1\n", nil,
			[]string{"f:1: Kubernetes only reads YAML 1.1, and the directive %YAML asks for another version (remove the directive)"},
		},
		{"byte order marks", "\ufeffa: 1\n---\n\ufeffb: 2\nc: 3\n\ufeff---\nd: 4\n", []string{`{"a":1}`, `{"b":2,"c":3}`, `{"d":4}`}, nil},
		{"cut short", "a: 1\nb: busy", []string{`{"a":1,"b":"busy"}`}, []string{"f:2: the last line does not end with a newline (the file may be truncated)"}},
		{"merge of a string", "a: {<<: x}\n", nil, []string{"f:1: a: a merge key (<<) needs a map or a list of maps"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			docs, problems := split(tt.in)
			if d := cmp.Diff(tt.docs, docs); d != "" {
				t.Error("documents:", d)
			}
			if d := cmp.Diff(tt.problems, problems); d != "" {
				t.Error("problems:", d)
			}
		})
	}
}

func TestBrokenJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"{\n\"a\": [1,\n":       "f.json:2: not valid JSON: the file ends in the middle of a value",
		"{\n\"a\": 1 \"b\": 2}": "f.json:2: not valid JSON: ",
		"{\"a\": 1,}":           "",
	} {
		_, problems := Split("f.json", []byte(in))
		if got := problems.Error(); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   string
		want string
	}{
		{"bytes", strings.Repeat("a", 10<<20+1), "f: larger than 10 MiB"},
		{"documents", strings.Repeat("a: 1\n---\n", 10_001), "f: has more than 10000 documents"},
		{"documents of a large file", strings.Repeat("a: 1\n# "+strings.Repeat("x", 30)+"\n---\n", 10_001), "f: has more than 10000 documents"},
		{"documents in JSON", strings.Repeat("{}", 10_001), "f: has more than 10000 documents"},
		{"values", "a: [" + strings.Repeat(",", 1_000_001) + "]\n", "f: has more than 1000000 values"},
		{"depth", "a: " + strings.Repeat("[", 120) + strings.Repeat("]", 120) + "\n", "f:1: a" + strings.Repeat("[0]", 99) + ": nested deeper than 100 levels"},
		{"depth in JSON", strings.Repeat(`{"a":`, 120) + "1" + strings.Repeat("}", 120), "f:1: nested deeper than 100 levels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, problems := split(tt.in)
			if d := cmp.Diff([]string{tt.want}, problems); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestBombs bounds the cost of small files that expand to gigabytes. It does not run in
// parallel, since it counts the allocations of the process.
func TestBombs(t *testing.T) {
	laughs := "a0: &a0 [" + strings.Repeat("x, ", 9) + "]\n"
	for i := 1; i < 12; i++ {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
	}
	quadratic := "a: &a " + strings.Repeat("x", 37_000) + "\nb:\n" + strings.Repeat("- *a\n", 7_000)
	deep := "a0: &a0 x\n"
	for i := 1; i < 300; i++ {
		deep += fmt.Sprintf("a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	for _, tt := range []struct {
		name, in, want string
		mebibytes      uint64
	}{
		{"laughs", laughs, "aliases expand this to more than 10 MiB", 1},
		{"quadratic", quadratic, "aliases expand this to more than 10 MiB", 10},
		{"deep aliases", deep, "aliases nest this deeper than 200 levels", 1},
		{"brackets", strings.Repeat("[", 100_000), "not valid YAML: exceeded max depth of 10000", 100},
		{"braces", strings.Repeat("{", 100_000), "not valid YAML: exceeded max depth of 10000", 100},
		{"indents", indents(3_000), "nested deeper than 100 levels", 100},
		{"merges", "a0: &a0 {k: 1}\n" + merges(2_000), "merge keys copy more than 100000 entries", 50},
		{"commas", "a: [" + strings.Repeat(",", 1_000_001) + "]", "has more than 1000000 values", 5},
		{"items", "a: [" + strings.Repeat("b,", 200_000) + "]\n", "", 110},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			_, problems := split(tt.in)
			goruntime.ReadMemStats(&after)
			if got := strings.Join(problems, "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got[:min(len(got), 100)], tt.want)
			}
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > tt.mebibytes {
				t.Errorf("allocated %d MiB, want at most %d", used, tt.mebibytes)
			}
		})
	}
}

func indents(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func merges(n int) string {
	var b strings.Builder
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, "a%d: &a%d {<<: *a%d, k%d: 1}\n", i, i, i-1, i)
	}
	return b.String()
}

// TestScalars compares the types of plain scalars with those of Kubernetes' own YAML library.
func TestScalars(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", "~", "null", "Null", "nUll", "y", "n", "yes", "No", "ON", "off", "oN", "true", "TRUE", "tRue", "t",
		"0", "-0", "+1", "-1", "1_000", "_1", "1_", "0400", "0o400", "0x1F", "0b101", "-0b11", "08", "9", "00",
		"1.5", "1.", ".5", "-.5", "+.5", ".", "-", "+", "1e3", "1E3", "1e+3", "1e-3", "1.5e3", "1e", "e3", "1e400", "1e30",
		"123456789012345678", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
		"1:20", "190:20:30", "2001-01-01", "2001-01-01T00:00:00Z", "2001-1-1 1:2:3", "12-34", "1234-", "2001-x",
		"0x", "0xg", "1x", "0b", "0b2", "0.1", "0.30000000000000004", "1e21", "100000000000000000000.5",
		"Infinity", "inf", "nan", "NaN", "0o644", "0x1p-2", "1__2", "+_1", "-_", "a", "=", "= =", ".a", "..", "...x", "-a", "+a",
		".1_0", ".1e400", ".1x", "0_7", "0o8", "-0x1", "+0x1", "1_.5", "1.5_0", "1,000", "12e03", "-1e5", "１",
	} {
		doc := "a: " + in + "\n"
		want, wantErr := sigsyaml.YAMLToJSON([]byte(doc))
		docs, problems := split(doc)
		if wantErr != nil {
			if len(problems) == 0 {
				t.Errorf("%q: read as %s, but Kubernetes says %v", in, docs, wantErr)
			}
			continue
		}
		if len(problems) > 0 || docs[0] != strings.TrimSpace(string(want)) {
			t.Errorf("%q: read as %s %s, want %s", in, docs, problems, want)
		}
	}
}

// TestKeys does the same for plain keys.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"a", "1", "01", "0x10", "yes", "n", "true", "1.5", "1e3", "1_0", "2001-01-01", "''", "'1'", "-1", ".5", "1e30"} {
		doc := in + ": x\n"
		want, err := sigsyaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		docs, problems := split(doc)
		if len(problems) > 0 || docs[0] != strings.TrimSpace(string(want)) {
			t.Errorf("key %q: read as %s %s, want %s", in, docs, problems, want)
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	docs, _ := Split("f", []byte("a:\n  b:\n  - x\n  - c: 1\n    d.e/f: 2\n"))
	for path, want := range map[string]int{
		"": 1, "a": 1, "a.b": 2, "a.b[0]": 3, "a.b[1].c": 4, "a.b[1].d.e/f": 5, "a.b[1][d.e/f]": 5,
		"a.b[7]": 2, "a.b[1].none.deeper": 4, "a.b[-1]": 2, "a.b[x]": 2, "none": 1, "a.b[1].c.below": 4, "[": 1, "a..b": 1,
	} {
		if got := docs[0].Line(path); got != want {
			t.Errorf("line of %q is %d, want %d", path, got, want)
		}
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	docs, _ := Split("f", []byte("a: {b: [x], c.d: 1}\n"))
	for path, want := range map[string]bool{
		"": true, "a": true, "a.b": true, "a.b[0]": true, "a[c.d]": true, "a.c.d": true, "a.b[1]": false, "a.x": false, "x": false, "a.b[0].y": false,
	} {
		if got := docs[0].Has(path); got != want {
			t.Errorf("has %q: %t, want %t", path, got, want)
		}
	}
}

func TestStringsInJSON(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a\"b\\c", "\x00\x01\x1f", "é😀\u2028", "tab\tnew\nline\r", "<&>"} {
		var got string
		if err := json.Unmarshal(Document{root: &node{kind: String, text: s}}.JSON(), &got); err != nil || got != s {
			t.Errorf("%q became %q: %v", s, got, err)
		}
	}
}

// FuzzDecode compares the reader with Kubernetes' own: what both accept must mean the same, and
// what Kubernetes rejects must not be accepted.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"a: 1\nb: [x, yes, ~]\n", "---\na: &x {k: 1}\nb: *x\n", "{\"a\": 1}", "a: |\n  x\n  y\n", "a: {<<: {b: 1}}\n",
		"? a\n: b\n", "a: !!str 1\n", "- a\n- b: c\n", "%YAML 1.1\n---\na: 0o17\n", "a: 'it''s'\nb: \"\\u00e9\\n\"\n",
		"{a: \"x\", b: [1,],}\n", "kind: Set\nitems: [{a: 1}]\n", "a: 1\na: 2\n", "a: 2001-01-01\n", "a:\r\n- b\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		docs, problems := Split("f", in)
		for _, d := range docs {
			b := d.JSON()
			if !json.Valid(b) {
				t.Fatalf("not JSON: %q", b)
			}
			d.Line("a.b[0].c")
		}
		if len(docs) != 1 || len(problems) > 0 || len(splitYAML(in)) > 1 {
			return
		}
		want, err := sigsyaml.YAMLToJSON(in)
		if err != nil {
			if exception(in) {
				return
			}
			t.Fatalf("accepted, but Kubernetes says: %v", err)
		}
		if got := compact(t, docs[0].JSON()); !exception(in) && got != compact(t, want) {
			t.Fatalf("read as %s, Kubernetes reads %s", got, want)
		}
	})
}

// exception says that the input uses what we read better than Kubernetes' library:
// merge keys, Lists, JSON with its own rules, explicit tags.
func exception(in []byte) bool {
	trimmed := bytes.TrimLeft(in, " \t\r\n\ufeff")
	return bytes.Contains(in, []byte("<<")) || bytes.Contains(in, []byte("List")) || bytes.Contains(in, []byte("!")) || bytes.HasPrefix(trimmed, []byte("{"))
}

func compact(t *testing.T, b []byte) string {
	var v any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestLargeFile: the documents of a large file, which are read in parallel, are those of a small
// one.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	text := func(padding int) []byte {
		var b bytes.Buffer
		for i := range 600 {
			fmt.Fprintf(&b, "---\na: &x%d {b: %d}\nc: *x%d\n# %s\n", i, i, i, strings.Repeat("x", padding))
			switch {
			case i%7 == 0:
				b.WriteString("c: 1\n") // twice
			case i%11 == 0:
				b.WriteString("d: [\n")
			case i%13 == 0:
				b.WriteString("...\n---\n\n---\n# nothing\n")
			}
		}
		return b.Bytes()
	}
	small, large := text(1), text(LargeFile/600)
	if len(small) >= LargeFile || len(large) < LargeFile {
		t.Fatalf("sizes %d and %d", len(small), len(large))
	}
	var got, want []string
	for _, in := range []struct {
		data []byte
		out  *[]string
	}{{small, &want}, {large, &got}} {
		docs, problems := Split("f", in.data)
		for _, d := range docs {
			*in.out = append(*in.out, fmt.Sprint(d.Index, d.Line(""), d.Line("c.b"), d.Aliased, string(d.JSON())))
		}
		for _, p := range problems {
			*in.out = append(*in.out, fmt.Sprint(p.Document, p))
		}
	}
	if d := cmp.Diff(want, got); d != "" || len(want) < 600 {
		t.Errorf("%d results: %s", len(want), d)
	}
}
