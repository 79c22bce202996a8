package manifests

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests/decode"
)

// slow is a file system whose first files take the longest to read.
type slow struct{ fstest.MapFS }

func (s slow) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "0") {
		time.Sleep(time.Millisecond)
	}
	return s.MapFS.Open(name)
}

// TestOrder: results have the order of the input, whatever is read first.
func TestOrder(t *testing.T) {
	t.Parallel()
	fsys := slow{fstest.MapFS{}}
	var want, wrong []string
	for i := range 4 * maxFiles {
		name := fmt.Sprintf("%03d.yaml", i)
		content := pod(fmt.Sprintf("p-%d", i))
		switch {
		case i%50 == 3: // large, with the name of a pod before it
			content = "# " + strings.Repeat("x", decode.LargeFile) + "\n" + content + "---\n" + pod(fmt.Sprintf("p-%d", i-1))
			want = append(want, name+fmt.Sprintf(":2 p-%d", i))
			wrong = append(wrong, fmt.Sprintf(`%s:12: metadata.name: Pod "default/p-%d" is already defined at %03d.yaml:1 (rename or remove one)`, name, i-1, i-1))
		case i%10 == 5:
			content = "a: ["
			wrong = append(wrong, name+":1: not valid YAML: did not find expected node content")
		default:
			want = append(want, name+fmt.Sprintf(":1 p-%d", i))
		}
		fsys.MapFS[name] = &fstest.MapFile{Data: []byte(content)}
	}
	set, err := Read(fsys)
	var got []string
	for _, p := range set.Pods {
		got = append(got, p.Annotations[podspec.AnnotationSource]+" "+p.Name)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("pods:", d)
	}
	if d := cmp.Diff(wrong, strings.Split(err.Error(), "\n")); d != "" {
		t.Error("errors:", d)
	}
}

// TestSharedValues: what items of a List share through aliases is not decoded in parallel.
func TestSharedValues(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\nkind: List\nitems:\n", strings.Repeat("x", decode.LargeFile))
	for i := range 50 {
		value := "*r"
		if i == 0 {
			value = "&r {requests: {memory: 99Ei}}"
		}
		fmt.Fprintf(&b, "- {apiVersion: v1, kind: Pod, metadata: {name: p-%d}, spec: {containers: [{name: c, image: i, resources: %s}]}}\n", i, value)
	}
	set, err := Read(dir("f", b.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range set.Pods {
		if got := p.Spec.Containers[0].Resources.Requests.Memory().String(); got != "8Pi" {
			t.Errorf("pod %s requests %s", p.Name, got)
		}
	}
	if len(set.Pods) != 50 || len(set.Warnings) != 1 {
		t.Errorf("%d pods and the warnings %v", len(set.Pods), set.Warnings)
	}
}

// blocked is a file system of which no file can be read.
type blocked struct {
	fstest.MapFS
	opened chan string
}

func (b blocked) Open(name string) (fs.File, error) {
	if name == "." {
		return b.MapFS.Open(name)
	}
	b.opened <- name
	select {}
}

// TestBlockedFiles: files that cannot be read do not outlast the context, and one error says so.
func TestBlockedFiles(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	fsys := blocked{fstest.MapFS{}, make(chan string, 3*maxFiles)}
	for i := range 3 * maxFiles {
		fsys.MapFS[fmt.Sprint(i)] = &fstest.MapFile{}
	}
	go func() {
		<-fsys.opened
		cancel(errors.New("interrupted"))
	}()
	_, err := read(ctx, Options{}, func(visit func(inputFile)) { inputFS(fsys, visit) })
	var problems Diagnostics
	if !errors.As(err, &problems) || !slices.ContainsFunc(problems, func(p Diagnostic) bool { return p.File == "0" && p.Message == "interrupted" }) {
		t.Errorf("error %v", err)
	}
}
