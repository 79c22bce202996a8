package ocispec

import (
	"path"
	"strings"
)

const slice = ".slice"

// CgroupsPath returns OCI's cgroupsPath of a container below the parent, which is the path of
// a cgroup or the name of a systemd slice. In a slice it is SLICE:PREFIX:NAME, which means
// the scope PREFIX-NAME.scope. Names of scopes are unique on the machine, so the prefix is
// the topmost slice.
func CgroupsPath(parent, id string) string {
	name, ok := strings.CutSuffix(parent, slice)
	if !ok {
		return path.Join(parent, id)
	}
	prefix, _, _ := strings.Cut(name, "-")
	return parent + ":" + prefix + ":" + id
}

// InSlice reports whether an OCI cgroupsPath means a systemd scope.
func InSlice(cgroupsPath string) bool {
	return strings.Contains(cgroupsPath, slice+":")
}
