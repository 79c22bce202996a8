package manifests

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/runonce/runonce/manifests/validation"
)

const declaration = `spec:
  containers:
  - name: web
    image: nginx:1.29
    env: [{name: PORT, value: 8080}]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, gcePersistentDisk: {pdName: data}}]

# This container declaration format is not public API.`

// readDeclaration reads standard input.
func readDeclaration(t *testing.T, text string) (*Set, error) {
	t.Helper()
	return ReadPaths(t.Context(), []string{"-"}, Options{Format: FormatGCE, Stdin: strings.NewReader(text)})
}

// TestDeclaration: a declaration is a pod like any other: it has its defaults, its place and a UID of its content.
func TestDeclaration(t *testing.T) {
	t.Parallel()
	set, err := readDeclaration(t, declaration+"\n")
	if err != nil || len(set.Pods) != 1 || len(set.Warnings) > 0 {
		t.Fatalf("%v, %v, %d pods", err, set.Warnings, len(set.Pods))
	}
	pod := set.Pods[0]
	if pod.Namespace != "default" || pod.Name != "web" || pod.UID == "" || pod.Spec.Containers[0].TerminationMessagePath == "" {
		t.Errorf("the pod: %+v", pod)
	}
	other, err := readDeclaration(t, strings.Replace(declaration, "8080", "8081", 1)+"\n")
	if err != nil || other.Pods[0].UID == pod.UID {
		t.Errorf("another declaration has the same UID, %v", err)
	}
}

// TestWrongDeclarations: what a pod must not have is an error at its place in the declaration, once.
func TestWrongDeclarations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"[a]":                        {"<stdin>:1: not an object (a manifest begins with apiVersion and kind)"},
		"spec: {containers: [{}]}":   {"<stdin>:1: spec.containers[0].image: Required value"},
		declaration + "\n---\n{}\n":  {"<stdin>:11: a declaration is one document (put each into a file of its own)"},
		"{kind: List, items: [{}]}":  {"<stdin>:1: items[0]: a declaration is one document (put each into a file of its own)"},
		replaced("nginx:1", "Nginx"): {`<stdin>:4: spec.containers[0].image: Invalid value: "Nginx.29": invalid reference format: repository name (library/Nginx.29) must be lowercase`},
		replaced("{name: data, mount", "{name: date, mount"): {`<stdin>:7: spec.volumes[0]: volume "data" is not mounted by the container (mount it, or remove it)`},
		replaced("volumes: [{name: data", "volumes: [{name: Data"): {
			`<stdin>:7: spec.volumes[0]: volume "Data" is not mounted by the container (mount it, or remove it)`,
		},
		replaced("pdName: data", "pdName: da/ta"):           {`<stdin>:7: spec.volumes[0].gcePersistentDisk.pdName: must not contain '/' (write the device name of the disk)`},
		replaced("pdName: data", "partition: 1"):            {"<stdin>:7: spec.volumes[0].gcePersistentDisk.pdName: Required value"},
		replaced("pdName: data", "pdName: d, fsType: ntfs"): {`<stdin>:7: spec.volumes[0].gcePersistentDisk.fsType: "ntfs" is not supported: no other file system is made or checked`},
	} {
		set, err := readDeclaration(t, text+"\n")
		if diff := cmp.Diff(want, lines(err)); diff != "" || len(set.Pods) > 0 && !strings.Contains(text, "---") {
			t.Errorf("%s\n%s", text, diff)
		}
	}
}

func replaced(old, by string) string { return strings.Replace(declaration, old, by, 1) }

// TestDeclarationWithoutFormat: the error about a file of this name says how it is read.
func TestDeclarationWithoutFormat(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), FormatGCE)
	if err := os.WriteFile(file, []byte(declaration+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadPaths(t.Context(), []string{file}, Options{})
	if err == nil || !strings.Contains(err.Error(), "use --format gce-container-declaration") {
		t.Errorf("error %v", err)
	}
}

// roundTrip answers requests in place of servers.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestMetadataServer: requests to it, and to no other server, have its header. What it sends is whole without a newline.
func TestMetadataServer(t *testing.T) {
	t.Parallel()
	var asked []string
	s := newStore(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(declaration)) })
	o := Options{Format: FormatGCE, client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.Host+" "+r.Header.Get("Metadata-Flavor"))
		r = r.Clone(r.Context())
		r.URL.Host = strings.TrimPrefix(s.URL, "http://")
		if r.URL.Path == "/away" {
			return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"http://other.example/x"}}, Body: http.NoBody, Request: r}, nil
		}
		return http.DefaultTransport.RoundTrip(r)
	})}}
	for _, path := range []string{"/computeMetadata/v1/instance/attributes/" + FormatGCE, "/away"} {
		set, err := ReadPaths(t.Context(), []string{"http://metadata.google.internal" + path}, o)
		if err != nil || len(set.Pods) != 1 || len(set.Warnings) > 0 {
			t.Errorf("%s: %v, %v", path, err, set.Warnings)
		}
	}
	if _, err := ReadPaths(t.Context(), []string{"http://metadata.google.internal.example/"}, o); err != nil {
		t.Error(err)
	}
	want := []string{"metadata.google.internal Google", "metadata.google.internal Google", "other.example ", "metadata.google.internal.example "}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
}

// FuzzDeclaration: what is accepted is valid for Kubernetes, and the same when it is read again.
func FuzzDeclaration(f *testing.F) {
	f.Add(declaration)
	f.Add("spec: {containers: [{image: a, command: [b], args: [c], stdin: true, tty: true, securityContext: {privileged: true}}], restartPolicy: Never}")
	f.Add("metadata: {name: p}\nspec: {containers: [{image: a, volumeMounts: [{name: v, mountPath: /v, readOnly: true}]}], volumes: [{name: v, hostPath: {path: /v}}]}")
	f.Add("spec: {containers: [{image: a, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, emptyDir: {medium: Memory}}]}\n---\n{}")
	rules, err := validation.New("", "default")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := readDeclaration(t, text)
		again, _ := readDeclaration(t, text)
		if len(set.Pods) > 1 || err == nil && len(set.Invalid) > 0 || len(again.Pods) != len(set.Pods) {
			t.Fatalf("%d pods, then %d, %v", len(set.Pods), len(again.Pods), err)
		}
		for i, p := range set.Pods {
			if again.Pods[i].UID != p.UID {
				t.Fatalf("uid %s, then %s", p.UID, again.Pods[i].UID)
			}
			if errs, _ := rules.Pod(p.DeepCopy()); len(errs) > 0 {
				t.Fatalf("accepted, but Kubernetes says %v", errs)
			}
		}
	})
}
