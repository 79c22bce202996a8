package manifests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podspec"
)

// annotated returns a pod that never restarts, with an annotation on its third line.
func annotated(name, annotation, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, annotations: {runonce/%s: %q}}\nspec: {restartPolicy: Never, containers: [{name: c, image: i}]}\n---\n", name, annotation, value)
}

func dependent(name, on string) string { return annotated(name, "depends-on", on) }

func plainJob(metadata string) string {
	return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  completions: 2\n  template:\n    metadata: %s\n    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}\n---\n", metadata)
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	const twoDBs = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: db}\nspec: {replicas: 2, selector: {matchLabels: {a: b}}, " +
		"template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n---\n"
	for _, c := range []struct {
		name, in string
		want     map[string]string // by pod
		errs     []string
	}{
		{name: "none", in: dependent("a", "b") + pod("b"), want: map[string]string{"a": "default/b:ready [default/b]"}},
		{
			name: "in any order, with conditions and spaces", in: dependent("a", " b:completed,\tc:running , d:ready") + dependent("b", "c") + pod("c") + "---\n" + pod("d"),
			want: map[string]string{"a": "default/b:completed [default/b] default/c:running [default/c] default/d:ready [default/d]", "b": "default/c:ready [default/c]"},
		},
		{
			name: "the pods of workloads", in: dependent("a", "db:running, j:completed, db-1") + twoDBs + plainJob("{}"),
			want: map[string]string{"a": "default/db:running [default/db-0 default/db-1] default/j:completed [default/j-0 default/j-1] default/db-1:ready [default/db-1]"},
		},
		{
			name: "of a template", in: plainJob("{annotations: {runonce/depends-on: b}}") + pod("b"),
			want: map[string]string{"j-0": "default/b:ready [default/b]", "j-1": "default/b:ready [default/b]"},
		},
		{
			name: "in another namespace", in: dependent("a", "other/b, default/c") + strings.Replace(pod("b"), "name: b", "name: b, namespace: other", 1) + "---\n" + pod("c"),
			want: map[string]string{"a": "other/b:ready [other/b] default/c:ready [default/c]"},
		},
		{
			name: "unknown", in: dependent("a", "dbb, other, spaced/db") + twoDBs,
			errs: []string{
				`f:3: metadata.annotations[runonce/depends-on]: there is no pod, workload or Service "db" in the input (there is one in namespace default, this is about spaced)`,
				`f:3: metadata.annotations[runonce/depends-on]: there is no pod, workload or Service "dbb" in the input (did you mean db?)`,
				`f:3: metadata.annotations[runonce/depends-on]: there is no pod, workload or Service "other" in the input`,
			},
		},
		{
			name: "not as it is written", in: dependent("a", "b:done, B, ,b, ns/x/y, b, b:running") + pod("b"),
			errs: []string{
				`f:3: metadata.annotations[runonce/depends-on]: "B": the name is not valid: `,
				`f:3: metadata.annotations[runonce/depends-on]: "b": is there twice`,
				`f:3: metadata.annotations[runonce/depends-on]: "b:done": unknown condition "done": must be one of running, ready, completed`,
				`f:3: metadata.annotations[runonce/depends-on]: "ns/x/y": the name is not valid: `,
				`f:3: metadata.annotations[runonce/depends-on]: has an empty item: write [NAMESPACE/]NAME[:CONDITION], separated by commas`,
			},
		},
		{name: "empty", in: dependent("a", ""), errs: []string{`f:3: metadata.annotations[runonce/depends-on]: has an empty item: `}},
		{
			name: "a cycle", in: dependent("x", "a") + dependent("a", "b") + dependent("b", "j") + plainJob("{annotations: {runonce/depends-on: a}}"),
			want: map[string]string{
				"x": "default/a:ready [default/a]", "b": "default/j:ready [default/j-0 default/j-1]",
				"j-0": "default/a:ready [default/a]", "j-1": "default/a:ready [default/a]",
			},
			errs: []string{`f:8: metadata.annotations[runonce/depends-on]: depends on itself: a -> b -> j -> a`},
		},
		{
			name: "on itself", in: dependent("a", "a") + plainJob("{annotations: {runonce/depends-on: j-1}}"),
			errs: []string{
				`f:3: metadata.annotations[runonce/depends-on]: depends on itself: a -> a`,
				`f:12: spec.template.metadata.annotations[runonce/depends-on]: depends on itself: j -> j`,
			},
		},
		{
			name: "ambiguous", in: dependent("a", "db") + pod("db") + "---\n" + twoDBs,
			errs: []string{`f:3: metadata.annotations[runonce/depends-on]: "db" is ambiguous: Pod "db" at f:6, Deployment "db" at f:14 (rename one of them)`},
		},
		{
			name: "the pods of a Service", in: dependent("a", "web, other/web:running") + serviceDoc("web", "  selector: {app: web}\n  ports: [{port: 80}]\n") +
				strings.Replace(serviceDoc("web", "  clusterIP: None\n  selector: {app: web}\n"), "name: web", "name: web, namespace: other", 1) +
				labelled("p", "app: web", "") + labelled("q", "app: web, tier: x", "") + labelled("r", "app: db", "") + strings.Replace(labelled("s", "app: web", ""), "name: s", "name: s, namespace: other", 1),
			want: map[string]string{"a": "default/web:ready [default/p default/q] other/web:running [other/s]"},
		},
		{
			name: "of the same name, and with the same pods", in: dependent("a", "db, c") + serviceDoc("db", "  clusterIP: None\n  selector: {a: b}\n") + twoDBs +
				labelled("c", "app: c", "") + serviceDoc("c", "  clusterIP: None\n  selector: {app: c}\n"),
			want: map[string]string{"a": "default/db:ready [default/db-0 default/db-1] default/c:ready [default/c]"},
		},
		{
			name: "of the same name, with other pods", in: dependent("a", "db") + serviceDoc("db", "  selector: {a: b}\n  ports: [{port: 80}]\n") + twoDBs + labelled("more", "a: b", ""),
			errs: []string{`f:3: metadata.annotations[runonce/depends-on]: "db" is ambiguous: Deployment "db" at f:13, Service "db" at f:6 (rename one of them)`},
		},
		{
			name: "a Service without pods", in: dependent("a", "none, out, nowhere") + serviceDoc("none", "  selector: {a: b}\n  ports: [{port: 80}]\n") +
				serviceDoc("out", "  type: ExternalName\n  externalName: x\n  selector: {app: c}\n") + serviceDoc("nowhere", "  ports: [{port: 80}]\n") + labelled("c", "app: c", ""),
			errs: []string{
				`f:3: metadata.annotations[runonce/depends-on]: Service "none" at f:6 has no pods`,
				`f:3: metadata.annotations[runonce/depends-on]: Service "nowhere" at f:21 has no pods`,
				`f:3: metadata.annotations[runonce/depends-on]: Service "out" at f:13 has no pods`,
			},
		},
		{
			name: "a Service of a similar name", in: dependent("a", "wbe") + serviceDoc("web", "  selector: {app: c}\n  ports: [{port: 80}]\n") + labelled("c", "app: c", ""),
			errs: []string{`f:3: metadata.annotations[runonce/depends-on]: there is no pod, workload or Service "wbe" in the input (did you mean web?)`},
		},
		{
			name: "a Service with errors", in: dependent("a", "web, db") + serviceDoc("web", "  port: 80\n") + serviceDoc("db", "  port: 80\n") + twoDBs,
			want: map[string]string{"a": "default/web:ready [default/web] default/db:ready [default/db-0 default/db-1]"},
			errs: []string{`f:10: spec.port: unknown field`, `f:16: spec.port: unknown field`},
		},
		{
			name: "a cycle through a Service", in: dependent("x", "all") + serviceDoc("all", "  selector: {app: c}\n  ports: [{port: 80}]\n") +
				strings.Replace(dependent("a", "b"), "annotations", "labels: {app: c}, annotations", 1) + dependent("b", "all"),
			want: map[string]string{"x": "default/all:ready [default/a]", "b": "default/all:ready [default/a]"},
			errs: []string{`f:15: metadata.annotations[runonce/depends-on]: depends on itself: a -> b -> all -> a`},
		},
		{
			name: "on a Service that selects it", in: strings.Replace(dependent("a", "all"), "annotations", "labels: {app: c}, annotations", 1) + serviceDoc("all", "  selector: {app: c}\n  ports: [{port: 80}]\n"),
			errs: []string{`f:3: metadata.annotations[runonce/depends-on]: depends on itself: a -> all -> a`},
		},
		{
			name: "a Service that never completes", in: dependent("a", "web:completed") + serviceDoc("web", "  selector: {app: c}\n  ports: [{port: 80}]\n") + labelled("c", "app: c", ""),
			errs: []string{`f:3: metadata.annotations[runonce/depends-on]: pod "c" never completes: `},
		},
		{
			name: "that never completes", in: dependent("a", "b:completed, db:completed") + pod("b") + "---\n" + twoDBs,
			errs: []string{
				`f:3: metadata.annotations[runonce/depends-on]: pod "b" never completes: container "c" is restarted whenever it exits (wait for it to be ready, or set its restartPolicy to Never or OnFailure)`,
				`f:3: metadata.annotations[runonce/depends-on]: pod "db-0" never completes: container "c" is restarted whenever it exits (`,
			},
		},
		{
			name: "without pods", in: dependent("a", "db") + strings.Replace(twoDBs, "replicas: 2", "replicas: 0", 1),
			errs: []string{`f:3: metadata.annotations[runonce/depends-on]: Deployment "db" at f:6 has no pods`},
		},
		{
			name: "invalid ones are known", in: dependent("a", "b, j") + annotated("b", "optional", "yes") + plainJob("{annotations: {runonce/depends-on: z}}"),
			want: map[string]string{"a": "default/b:ready [default/b] default/j:ready [default/j-0 default/j-1]"},
			errs: []string{
				`f:8: metadata.annotations[runonce/optional]: is "yes": must be "true" or "false"`,
				`f:17: spec.template.metadata.annotations[runonce/depends-on]: there is no pod, workload or Service "z" in the input`,
			},
		},
		{
			name: "on the workload and not its template", in: strings.Replace(plainJob("{}"), "{name: j}", "{name: j, annotations: {runonce/depends-on: b, runonce/optional: 'true'}}", 1),
			errs: []string{
				`f:3: metadata.annotations[runonce/depends-on]: has no effect on the pods of a Job (move it to spec.template.metadata.annotations)`,
				`f:3: metadata.annotations[runonce/optional]: has no effect on the pods of a Job (move it to spec.template.metadata.annotations)`,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			set, err := Read(dir("f", c.in))
			got := map[string]string{}
			for id, list := range set.Dependencies() {
				for _, d := range list {
					got[id.Name] = strings.TrimSpace(fmt.Sprintf("%s %s %v", got[id.Name], d.ID(), d.Pods))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" && len(c.want)+len(got) > 0 {
				t.Error(diff)
			}
			if len(lines(err)) != len(c.errs) {
				t.Fatalf("errors %q", lines(err))
			}
			for i, line := range lines(err) {
				if !strings.HasPrefix(line, c.errs[i]) {
					t.Errorf("%s\nwant %s", line, c.errs[i])
				}
			}
		})
	}
}

// TestOrderIsNoContent: the order of pods and their weight are not what runs, so that changing them
// replaces nothing. Pods note the groups by which others know them.
func TestOrderIsNoContent(t *testing.T) {
	t.Parallel()
	plain := mustRead(t, "f", strings.Replace(plainJob("{}")+dependent("a", "j"), "depends-on", "other", 1))
	ordered := mustRead(t, "f", plainJob("{annotations: {runonce/optional: 'true'}}")+dependent("a", "j"))
	for i := range 2 {
		if plain.Pods[i].UID != ordered.Pods[i].UID {
			t.Errorf("pod %s has another UID", plain.Pods[i].Name)
		}
		if got := ordered.Pods[i].Annotations[podspec.AnnotationGroups]; got != "j" || !podspec.IsOptional(ordered.Pods[i]) {
			t.Errorf("groups %q, annotations %v", got, ordered.Pods[i].Annotations)
		}
	}
	later := mustRead(t, "f", plainJob("{}")+dependent("a", "j:completed"))
	if later.Pods[2].UID != ordered.Pods[2].UID {
		t.Error("another condition is another pod")
	}
}

// FuzzDependencies: what is read is written back, and read the same.
func FuzzDependencies(f *testing.F) {
	for _, s := range []string{"db", "a, b:completed ,ns/c:running", "", ",", "a:b:c", "x/y/z", " a\t", "a,a", "default/a,a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, problems := podspec.ParseDependencies(text, "default")
		if items := strings.Count(text, ",") + 1; len(list)+len(problems) != items {
			t.Fatalf("%d items, %d read, problems %q", items, len(list), problems)
		}
		if len(list) == 0 {
			return
		}
		same, problems := podspec.ParseDependencies(podspec.Written(list, "default"), "default")
		if diff := cmp.Diff(list, same); diff != "" || len(problems) > 0 {
			t.Fatal(diff, problems)
		}
	})
}

// TestUnknownAnnotation: a misspelt annotation is not ignored silently.
func TestUnknownAnnotation(t *testing.T) {
	t.Parallel()
	set := mustRead(t, "f", annotated("a", "depend-on", "b")+annotated("b", "source", "x")+plainJob("{annotations: {runonce/optionl: 'true'}}"))
	want := []string{
		`f:3: metadata.annotations[runonce/depend-on]: is unknown and has no effect (did you mean runonce/depends-on?)`,
		`f:14: spec.parallelism: 1 pods run at a time, but the node needs enough resources for all 2`,
		`f:17: spec.template.metadata.annotations[runonce/optionl]: is unknown and has no effect (did you mean runonce/optional?)`,
	}
	if diff := cmp.Diff(want, lines(set.Warnings.Err())); diff != "" {
		t.Error(diff)
	}
}
