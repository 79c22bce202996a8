package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"
)

// unknowns are the values that a story binds by $is. They hold for the whole story, so
// that a value can be demanded to be the same in two containers.
type unknowns map[string]any

// patience bounds the wait for what takes a moment on a machine that is not busy.
const patience = 3 * time.Minute

// facts compares what the applet facts has written to a container's log.
func (s *story) facts(ts *testscript.TestScript, args []string) {
	pod, container, _ := strings.Cut(args[0], "/")
	if name, inner, ok := strings.Cut(container, "/"); ok {
		pod, container = pod+"/"+name, inner
	}
	logs := []string{"logs", pod}
	if container != "" { // else the only one of the pod
		logs = append(logs, "-c", container)
	}
	var code int
	var stdout, stderr bytes.Buffer
	line := awaitObject(func() (string, bool) {
		stdout.Reset()
		stderr.Reset()
		code = s.main(&stdout, &stderr, logs)
		return stdout.String(), code == 0
	})
	if line == "" {
		ts.Fatalf("no facts in the log: exit code %d\n%s%s", code, &stdout, &stderr)
	}
	s.like(ts, args[1], line)
}

// awaitObject looks until what it sees has a line that is a JSON object, and returns that:
// a container that runs may not have printed it yet. It is "" when look is not ok, or when
// there is none for too long.
func awaitObject(look func() (text string, ok bool)) string {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		text, ok := look()
		if line := lastObject(text); line != "" || !ok || time.Now().After(deadline) {
			return line
		}
	}
}

// lastObject is the last line that is a JSON object.
func lastObject(text string) string {
	for _, line := range slices.Backward(strings.Split(text, "\n")) {
		if strings.HasPrefix(line, "{") && json.Valid([]byte(line)) {
			return line
		}
	}
	return ""
}

// like fails where the JSON text does not match the file.
func (s *story) like(ts *testscript.TestScript, file, text string) {
	var want, got any
	err := errors.Join(yaml.UnmarshalStrict([]byte(ts.ReadFile(file)), &want), json.Unmarshal([]byte(text), &got))
	if err != nil {
		ts.Fatalf("%s: %v\n%s", file, err, text)
	}
	if all, ok := got.(map[string]any); ok {
		nameNamespaces(all["namespaces"])
	}
	if m := s.known.mismatches("", want, got); len(m) > 0 {
		ts.Fatalf("%s:%s", file, strings.Join(m, ""))
	}
}

// nameNamespaces replaces what is the host's, which is ours, by "host".
func nameNamespaces(seen any) {
	all, ok := seen.(map[string]any)
	if !ok {
		return
	}
	for name, id := range all {
		if own, err := os.Readlink("/proc/self/ns/" + name); err == nil && own == id {
			all[name] = "host"
		}
	}
}

// mismatches says where got is not what is wanted, which is YAML in the story. Objects match
// when the wanted keys do; lists and other values have to be equal. An object whose keys begin
// with $ demands something of the value:
//
//	$absent: true   it is not there
//	$regexp: TEXT   as text it matches
//	$any: [A, B]    it matches one of these
//	$not: A         it does not match this
//	$has: [A, B]    a list in which each of these matches something, or a text that has these parts
//	$lacks: [A, B]  a list, a text or an object that has none of these
//	$length: N      a list or an object of so many
//	$is: NAME       it is the same wherever the story says NAME
func (known unknowns) mismatches(path string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		if slices.ContainsFunc(slices.Collect(maps.Keys(w)), func(k string) bool { return strings.HasPrefix(k, "$") }) {
			return known.demands(path, w, got)
		}
		g, ok := got.(map[string]any)
		if !ok {
			return differ(path, want, got)
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(w)) {
			out = append(out, known.mismatches(path+"."+k, w[k], g[k])...)
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return differ(path, want, got)
		}
		var out []string
		for i := range w {
			out = append(out, known.mismatches(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return out
	}
	if !reflect.DeepEqual(want, got) {
		return differ(path, want, got)
	}
	return nil
}

func differ(path string, want, got any) []string {
	text := func(v any) string {
		if v == nil {
			return "nothing"
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	return []string{fmt.Sprintf("\n  %s\n    want %s\n    got  %s", strings.TrimPrefix(path, "."), text(want), text(got))}
}

func (known unknowns) demands(path string, want map[string]any, got any) []string {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if !known.holds(k, want[k], got) {
			return differ(path, want, got)
		}
	}
	return nil
}

func (known unknowns) holds(demand string, arg, got any) bool {
	matches := func(want any) bool { return len(known.mismatches("", want, got)) == 0 }
	list, _ := arg.([]any)
	switch demand {
	case "$absent":
		return (got == nil) == (arg == true)
	case "$regexp":
		text, ok := got.(string)
		if !ok {
			text = fmt.Sprint(got)
		}
		return got != nil && regexp.MustCompile(fmt.Sprint(arg)).MatchString(text)
	case "$any":
		return slices.ContainsFunc(list, matches)
	case "$not":
		return got != nil && !matches(arg)
	case "$has":
		return !slices.ContainsFunc(list, func(e any) bool { return !known.has(got, e) })
	case "$lacks":
		return !slices.ContainsFunc(list, func(e any) bool { return known.has(got, e) })
	case "$length":
		v := reflect.ValueOf(got)
		return (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && float64(v.Len()) == arg
	case "$is":
		name := fmt.Sprint(arg)
		if _, ok := known[name]; !ok && got != nil {
			known[name] = got
		}
		return got != nil && reflect.DeepEqual(known[name], got)
	}
	panic("no such demand: " + demand)
}

func (known unknowns) has(got, want any) bool {
	switch g := got.(type) {
	case []any:
		return slices.ContainsFunc(g, func(e any) bool { return len(known.mismatches("", want, e)) == 0 })
	case map[string]any:
		_, ok := g[fmt.Sprint(want)]
		return ok
	case string:
		return strings.Contains(g, fmt.Sprint(want))
	}
	return false
}

func TestMismatches(t *testing.T) {
	t.Parallel()
	const got = `{"uid": 1000, "groups": [1, 2], "caps": {"effective": ["CHOWN", "KILL"]}, "text": "one two", "none": []}`
	for name, tt := range map[string]struct{ want, diff string }{
		"a subset":             {"{uid: 1000, caps: {effective: [CHOWN, KILL]}}", ""},
		"another number":       {"{uid: 1}", "uid want 1 got 1000"},
		"not there":            {"{gid: 1}", "gid want 1 got nothing"},
		"lists are whole":      {"{groups: [1]}", "groups want [1] got [1,2]"},
		"in a list":            {"{groups: [1, 3]}", "groups[1] want 3 got 2"},
		"not an object":        {"{uid: {a: 1}}", `uid want {"a":1} got 1000`},
		"deep":                 {"{caps: {effective: [], bounding: []}}", `caps.bounding want [] got nothing caps.effective want [] got ["CHOWN","KILL"]`},
		"empty list":           {"{none: []}", ""},
		"$absent":              {"{gid: {$absent: true}, uid: {$absent: false}}", ""},
		"$absent but there":    {"{uid: {$absent: true}}", `uid want {"$absent":true} got 1000`},
		"$regexp":              {"{text: {$regexp: ^one}, uid: {$regexp: '^1000$'}}", ""},
		"$regexp fails":        {"{text: {$regexp: ^two}}", `text want {"$regexp":"^two"} got "one two"`},
		"$regexp of nothing":   {"{gid: {$regexp: .}}", `gid want {"$regexp":"."} got nothing`},
		"$any":                 {"{uid: {$any: [1, 1000]}}", ""},
		"$any fails":           {"{uid: {$any: [1, 2]}}", `uid want {"$any":[1,2]} got 1000`},
		"$not":                 {"{uid: {$not: 1}}", ""},
		"$not fails":           {"{uid: {$not: 1000}}", `uid want {"$not":1000} got 1000`},
		"$has, $lacks":         {"{groups: {$has: [2], $lacks: [3]}, text: {$has: [two]}, caps: {$lacks: [ambient]}}", ""},
		"$has fails":           {"{groups: {$has: [2, 3]}}", `groups want {"$has":[2,3]} got [1,2]`},
		"$lacks fails":         {"{groups: {$has: [2], $lacks: [1]}}", `groups want {"$has":[2],"$lacks":[1]} got [1,2]`},
		"$length":              {"{groups: {$length: 2}}", ""},
		"$length fails":        {"{groups: {$length: 1}}", `groups want {"$length":1} got [1,2]`},
		"$is binds":            {"{uid: {$is: a}, caps: {$is: b}}", ""},
		"$is another, later":   {"{groups: [{$is: a}, {$is: a}]}", `groups[1] want {"$is":"a"} got 2`},
		"$is of nothing fails": {"{gid: {$is: a}}", `gid want {"$is":"a"} got nothing`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want, seen any
			if err := errors.Join(yaml.Unmarshal([]byte(tt.want), &want), json.Unmarshal([]byte(got), &seen)); err != nil {
				t.Fatal(err)
			}
			diff := strings.Join(strings.Fields(strings.Join(unknowns{}.mismatches("", want, seen), " ")), " ")
			if diff != tt.diff {
				t.Errorf("%q, want %q", diff, tt.diff)
			}
		})
	}
}
