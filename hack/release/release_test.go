package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPackageVersion(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 2, 20, 35, 0, time.UTC)
	for _, c := range []struct{ described, want string }{
		{"v1.2.3", "1.2.3"},
		{"v1.2.3-rc.1", "1.2.3~rc.1"},
		{"v1.2.3-5-gabcdef0", "1.2.3+5.gabcdef0"},
		{"v1.2.3-rc.1-5-gabcdef0-dirty", "1.2.3~rc.1+5.gabcdef0+dirty"},
		{"abcdef0", "0.0.0+git20261123022035.abcdef0"},
		{"other-tag-1-gabcdef0", "0.0.0+git20261123022035.other.tag.1.gabcdef0"},
		{"abcdef0-dirty", "0.0.0+git20261123022035.abcdef0+dirty"},
	} {
		if got := packageVersion(c.described, at); got != c.want {
			t.Errorf("%s: %s, want %s", c.described, got, c.want)
		}
	}
}

func TestBillOfMaterials(t *testing.T) {
	t.Parallel()
	var s sbom
	s.add("b", &debug.BuildInfo{GoVersion: "go1.2", Deps: []*debug.Module{{Path: "example.com/m", Version: "v1.0.0+incompatible"}}})
	s.add("a", &debug.BuildInfo{GoVersion: "go1.2"})
	s.extend("a", s.library("generic", "c", "3"))
	s.addPackage("d", "4-1+deb5")
	text, err := s.document("1.0", time.Unix(0, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		BOMFormat    string `json:"bomFormat"`
		Metadata     struct{ Timestamp string }
		Components   []component
		Dependencies []dependency
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, c := range got.Components {
		refs = append(refs, c.Ref)
	}
	library, c := "pkg:golang/stdlib@1.2", "pkg:generic/c@3"
	module := "pkg:golang/example.com/m@v1.0.0%2Bincompatible"
	if diff := cmp.Diff([]string{"a", "b", "d", c, module, library}, refs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]dependency{{"b", []string{library, module}}, {"a", []string{library, c}}, {Ref: "d"}}, got.Dependencies); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("pkg:deb/debian/d@4-1%2Bdeb5?arch=source", got.Components[2].PURL); diff != "" {
		t.Error(diff)
	}
	if got.BOMFormat != "CycloneDX" || got.Metadata.Timestamp != "1970-01-01T00:00:00Z" {
		t.Errorf("%+v", got)
	}
}

func TestLicenses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var l licenses
	if err := l.addFrom("none", dir); err == nil {
		t.Error("software without a license is accepted")
	}
	if err := os.WriteFile(filepath.Join(dir, "License.txt"), []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "a", "b"} {
		if err := l.addFrom(name, dir); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(l.text()); !strings.HasSuffix(got, "=\na\nb\n\ntext\n") {
		t.Errorf("%q", got)
	}
}

// TestChecksums: a released file that is another is noticed.
func TestChecksums(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeChecksums(dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if want := "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
}
