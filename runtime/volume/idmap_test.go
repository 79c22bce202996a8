package volume

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/failure"
)

func TestMapUsers(t *testing.T) {
	t.Parallel()
	m, r := testManager(t)
	pod := testPod()
	source := t.TempDir()
	file := filepath.Join(source, "hosts")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mounts := []specs.Mount{
		{Destination: "/etc/hosts", Type: "bind", Source: file, Options: []string{"rbind", "rprivate", "rw"}},
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/data", Type: "bind", Source: source, Options: []string{"rbind", "rslave", "ro"}},
	}
	for range 2 { // the second instance of a container
		if err := m.MapUsers(pod, "main", "/proc/self/ns/user", slices.Clone(mounts)); err != nil {
			t.Fatal(err)
		}
	}
	got := slices.Clone(mounts)
	if err := m.MapUsers(pod, "main", "/proc/self/ns/user", got); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(m.Root, "pods", string(pod.UID), "volume-idmaps", "main")
	if got[0].Source != filepath.Join(dir, "0") || got[1].Source != "proc" || got[2].Source != filepath.Join(dir, "2") {
		t.Errorf("mounts %+v", got)
	}
	if want := "rbind rslave ro nosuid"; strings.Join(got[2].Options, " ") != want || len(mounts[2].Options) != 3 {
		t.Errorf("options %q of %q, want %q", got[2].Options, mounts[2].Options, want)
	}
	if info, err := os.Stat(got[0].Source); err != nil || info.IsDir() {
		t.Errorf("a file is to be mounted on a file: %v", err)
	}
	var calls []string
	for _, c := range r.calls {
		if strings.HasPrefix(c, "map ") {
			calls = append(calls, c)
		}
	}
	if want := []string{"map hosts 0 0x40000", "map " + filepath.Base(source) + " 2 0x80000"}; !slices.Equal(calls[len(calls)-2:], want) {
		t.Errorf("calls %q, want the last to be %q", calls, want)
	}
	if err := m.Teardown(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left after Teardown: %v", err)
	}
}

func TestMapUsersOfAnOldKernel(t *testing.T) {
	t.Parallel()
	m, r := testManager(t)
	r.old = true
	mounts := []specs.Mount{{Destination: "/data", Type: "bind", Source: t.TempDir()}}
	err := m.MapUsers(testPod(), "main", "/proc/self/ns/user", mounts)
	var refused *failure.Error
	if !errors.As(err, &refused) || !refused.Permanent() || !errors.Is(err, errNotMappable) || !strings.Contains(err.Error(), "mapping the users of /data") {
		t.Errorf("error %v, want a permanent one", err)
	}
}
