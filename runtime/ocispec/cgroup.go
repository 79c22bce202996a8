package ocispec

import (
	"path"
	"strings"
)

const slice = ".slice"

// CgroupsPath returns OCI's cgroupsPath of a container below the parent: the path of a
// cgroup, or the name of a slice of systemd. In a slice it is SLICE:PREFIX:NAME, which means
// the scope PREFIX-NAME.scope; scopes have names of the whole machine, so the prefix is the
// slice that holds all.
func CgroupsPath(parent, id string) string {
	name, ok := strings.CutSuffix(parent, slice)
	if !ok {
		return path.Join(parent, id)
	}
	prefix, _, _ := strings.Cut(name, "-")
	return parent + ":" + prefix + ":" + id
}

// InSlice reports whether an OCI cgroupsPath means a scope of systemd.
func InSlice(cgroupsPath string) bool {
	return strings.Contains(cgroupsPath, slice+":")
}
