package main

import (
	"cmp"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// sbom is a software bill of materials, in the terms of CycloneDX: each program, its modules, and
// which program consists of which modules.
type sbom struct {
	components   []component
	dependencies []dependency
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

// add adds a program with the modules that it says it is built from.
func (s *sbom) add(program string, info *debug.BuildInfo) {
	on := make([]string, 0, len(info.Deps)+1)
	on = append(on, s.library("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for _, m := range info.Deps {
		on = append(on, s.library("golang", m.Path, m.Version))
	}
	c := component{Type: "application", Ref: program, Name: program}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		c.Version, c.PURL = v, "pkg:golang/"+info.Main.Path+"@"+strings.ReplaceAll(v, "+", "%2B")
	}
	s.put(c)
	s.dependencies = append(s.dependencies, dependency{program, on})
}

// addPackage adds a program that is built from a source package of Debian.
func (s *sbom) addPackage(program, version string) {
	purl := "pkg:deb/debian/" + program + "@" + strings.ReplaceAll(version, "+", "%2B") + "?arch=source"
	s.put(component{Type: "application", Ref: program, Name: program, Version: version, PURL: purl})
	s.dependencies = append(s.dependencies, dependency{Ref: program})
}

// extend says that a program that has been added also contains a library.
func (s *sbom) extend(program, ref string) {
	for i := range s.dependencies {
		if s.dependencies[i].Ref == program {
			s.dependencies[i].On = append(s.dependencies[i].On, ref)
		}
	}
}

// library adds a library and returns the name by which dependencies refer to it.
func (s *sbom) library(kind, name, version string) string {
	purl := "pkg:" + kind + "/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
	s.put(component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl})
	return purl
}

func (s *sbom) put(c component) {
	if !slices.Contains(s.components, c) {
		s.components = append(s.components, c)
	}
}

// document returns the bill of materials as a document of CycloneDX 1.6.
func (s *sbom) document(version string, at time.Time) ([]byte, error) {
	slices.SortFunc(s.components, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	of := component{Type: "application", Ref: "release", Name: "runonce", Version: version, PURL: "pkg:github/runonce/runonce@" + strings.ReplaceAll(version, "+", "%2B")}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata":   map[string]any{"timestamp": at.Format(time.RFC3339), "component": of},
		"components": s.components, "dependencies": s.dependencies,
	}, "", "  ")
	return append(text, '\n'), err
}
