package podspec

import "strings"

// ParseCgroups returns a process's cgroup by controller, "" for that of version 2, from the text of its file /proc/PID/cgroup.
func ParseCgroups(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		// NUMBER:CONTROLLERS:PATH
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			all[controller] = f[2]
		}
	}
	return all
}
