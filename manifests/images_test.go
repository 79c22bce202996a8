package manifests

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
)

const imageDigest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// imageInput is a directory with two documents: a pod, and a Deployment of two.
func imageInput() fstest.MapFS {
	return dir("f", pod("p")+"---\n"+`apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      initContainers: [{name: i, image: "init`+imageDigest+`"}]
      containers: [{name: c, image: "x:1"}]
      volumes: [{name: v, image: {reference: "data:1"}}]
`)
}

func readImages(t *testing.T, o Options) (*Set, error) {
	t.Helper()
	return read(t.Context(), o, func(visit func(inputFile)) { inputFS(imageInput(), visit) })
}

func TestRequireDigest(t *testing.T) {
	t.Parallel()
	_, err := readImages(t, Options{RequireDigest: true})
	const hint = " is not given by its digest (write NAME@sha256:..., or use --lock)"
	want := []string{
		`f:7: spec.containers[0].image: image "busybox:1"` + hint,
		`f:19: spec.template.spec.containers[0].image: image "x:1"` + hint,
		`f:20: spec.template.spec.volumes[0].image.reference: image "data:1"` + hint,
	}
	if diff := cmp.Diff(want, lines(err)); diff != "" {
		t.Error(diff)
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	set, err := readImages(t, Options{Places: true})
	if err != nil || len(set.Pods) != 3 {
		t.Fatal(set.Pods, err)
	}
	var faults []Fault
	for _, p := range set.Pods[1:] {
		faults = append(faults, Fault{Object: p, Field: "spec.containers[0].image", Message: "absent", Hint: "get it"})
	}
	want := []string{"f:19: spec.template.spec.containers[0].image: absent (get it)"}
	if diff := cmp.Diff(want, lines(set.Refuse(faults))); diff != "" {
		t.Error(diff)
	}
	if len(set.Pods) != 1 || set.Pods[0].Name != "p" {
		t.Errorf("pods %v", set.Pods)
	}
	if len(set.Invalid) != 1 || set.Invalid[0].Name != "d" || set.Invalid[0].Line != 9 || len(set.Invalid[0].Problems) != 1 {
		t.Errorf("invalid %+v", set.Invalid)
	}
	if err := set.Refuse(nil); err != nil || len(set.Pods) != 1 {
		t.Errorf("%v, %v", set.Pods, err)
	}
}

// TestSetImages: the UID of a pod follows its images, whatever they were before.
func TestSetImages(t *testing.T) {
	t.Parallel()
	lock := func(ref string) string {
		if strings.Contains(ref, "@") {
			return ref
		}
		return ref + imageDigest
	}
	var uids [2]string
	for i := range uids {
		set, err := readImages(t, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := set.Pods[1]
		before := p.UID
		if err := set.SetImages(p, func(ref string) string { return ref }); err != nil || p.UID != before {
			t.Errorf("unchanged: UID %s, was %s; %v", p.UID, before, err)
		}
		if err := set.SetImages(p, lock); err != nil || p.UID == before || p.Annotations[annotationHash] != string(p.UID) {
			t.Errorf("UID %s, %v", p.UID, err)
		}
		uids[i] = string(p.UID)
		if got := images(p); !cmp.Equal(got, []string{"init" + imageDigest, "x:1" + imageDigest, "data:1" + imageDigest}) {
			t.Errorf("images %v", got)
		}
	}
	if uids[0] != uids[1] {
		t.Errorf("UIDs %v", uids)
	}
}

func images(pod *v1.Pod) (refs []string) {
	for _, i := range podspec.Images(pod) {
		refs = append(refs, *i.Ref)
	}
	return refs
}
