package hostnet

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

// SystemEnv returns an environment whose PATH is its SystemPath.
func SystemEnv(environ []string) []string {
	path := ""
	for _, e := range environ {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
		}
	}
	// A program takes the last of several entries of one name.
	return append(slices.Clip(environ), "PATH="+SystemPath(path))
}
