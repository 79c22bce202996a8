package containerd

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	"github.com/google/go-cmp/cmp"
)

// rules returns the lines of a profile without comments.
func rules(profile string) []string {
	var all []string
	for line := range strings.Lines(profile) {
		line, _, _ = strings.Cut(line, "   #")
		if line = strings.TrimSpace(line); line != "" && (line[0] != '#' || strings.HasPrefix(line, "#include")) {
			all = append(all, line)
		}
	}
	return all
}

// TestProfile: it is that of containerd, on this machine. It does not run in parallel.
func TestProfile(t *testing.T) {
	t.Setenv("PATH", "") // a rootlesskit would be in the profile
	want, err := apparmor.DumpDefaultProfile("name")
	if err != nil {
		t.Fatal(err)
	}
	caller, _ := os.ReadFile("/proc/self/attr/current")
	if diff := cmp.Diff(rules(want), rules(profile("name", string(caller), os.DirFS("/etc/apparmor.d")))); diff != "" {
		t.Error(diff)
	}
}

// TestProfileParts: it includes what is installed, and lets the caller end its containers.
func TestProfileParts(t *testing.T) {
	t.Parallel()
	installed := fstest.MapFS{"abi/3.0": {}, "tunables/global": {}, "abstractions/base": {}}
	all := strings.Join(rules(profile("name", "runonce (enforce)\n", installed)), "\n")
	for _, want := range []string{
		"abi <abi/3.0>,\n#include <tunables/global>\nprofile name flags=(attach_disconnected,mediate_deleted) {\n#include <abstractions/base>\n",
		"\nsignal (receive) peer=runonce,\nsignal (send,receive) peer=name,\n", "\nptrace (trace,tracedby,read,readby) peer=name,\n}",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	bare := strings.Join(rules(profile("name", "", fstest.MapFS{})), "\n")
	if !strings.HasPrefix(bare, "@{PROC}=/proc/\nprofile name ") || !strings.Contains(bare, "peer=unconfined,\nsignal (receive) peer=runc,") {
		t.Error(bare)
	}
}
