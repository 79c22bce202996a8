package cni

import (
	"slices"
	"strings"
)

// SystemPath returns a PATH with the directories of system programs after its own: ours
// may lack them at boot and from cron.
func SystemPath(path string) string {
	dirs := strings.Split(path, ":")
	for _, d := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"} {
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return strings.TrimPrefix(strings.Join(dirs, ":"), ":")
}
