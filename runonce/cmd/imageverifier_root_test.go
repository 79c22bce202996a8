package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runonce/cmd"
	"github.com/runonce/runonce/runonce/report"
)

// TestImageVerifier: an image that a verifier refuses is not pulled, and its pod fails at once with the verifier's words.
func TestImageVerifier(t *testing.T) {
	roottest.Require(t)
	ref, plain := registry.Start(t, registry.Options{}).Host+"/far:1", filepath.Join(t.TempDir(), "box.tar")
	archiveOf(t, plain, ociimage.Build, boxImage(t, ref, 1<<10))
	skopeo(t, "copy", "--dest-tls-verify=false", "oci-archive:"+plain, "docker://"+ref)
	pods, m := podDir(t, oncePod("far", ref)), newMachine(t, "")
	dir, asked := t.TempDir(), filepath.Join(t.TempDir(), "asked")
	exectest.Write(t, filepath.Join(dir, "10-asked"), "#!/bin/sh\necho \"$@\" >>"+asked+"\ncat >>"+asked+"\n")
	refuses := filepath.Join(dir, "20-refuses")
	exectest.Write(t, refuses, "#!/bin/sh\necho no signature of ops@example.com\nexit 3\n")
	run := func(code int) report.Report {
		t.Helper()
		var r report.Report
		out := m.fails(t, code, "run", "--until", "completed", "--image-verifier-dir", dir, "-o", "json", pods)
		if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Results) != 1 {
			t.Fatalf("%v: %s", err, out)
		}
		return r
	}
	const said = "verifier 20-refuses rejected image (exit code 3): no signature of ops@example.com"
	if got := run(1).Results[0]; got.Reason != "SignatureValidationFailed" || got.Attempts != 1 || !strings.Contains(got.Message, said) {
		t.Errorf("%+v", got)
	}
	if _, pulled := m.images(t)[ref]; pulled {
		t.Error("a refused image was pulled")
	}
	bundle := filepath.Join(t.TempDir(), "bundle.tar")
	if got := invokeWith(t, cmd.IO{}, "images", "bundle", "--image-verifier-dir", dir, "-o", bundle, pods); got.code != 1 || !strings.Contains(got.stderr, said) {
		t.Errorf("%+v", got)
	}

	if err := os.Remove(refuses); err != nil {
		t.Fatal(err)
	}
	digest := run(0).Results[0].Containers[0].Digest
	text, err := os.ReadFile(asked)
	if want := "-name " + ref + " -digest " + digest + " -stdin-media-type application/vnd.oci.descriptor.v1+json\n{"; err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("%v, asked %s, want %s", err, text, want)
	}
}
