package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	got := parseOptions([]string{"rbind", "ro", "nosuid", "suid", "defaults", "workdir=/w", "lowerdir=/b:/a", "uidmap=0:1:2", "gidmap=0:3:4", "size=64k"})
	want := options{
		flags: unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY, data: []string{"workdir=/w", "size=64k"},
		lower: []string{"/b", "/a"}, work: "/w", uidmap: "0:1:2", gidmap: "0:3:4",
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
		t.Error(diff)
	}
}

func TestMoveLayers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		layers []string
		dir    string
	}{
		{[]string{"/s/snapshots/1/fs"}, "/s/snapshots/1"},
		{[]string{"/s/snapshots/12/fs", "/s/snapshots/1/fs"}, "/s/snapshots"},
		{[]string{"/a/fs", "/b/fs"}, "/"},
	} {
		if got := common(tc.layers); got != tc.dir {
			t.Errorf("%q: %q", tc.layers, got)
		}
	}
	if got := move([]string{"/s/1/fs", "/s/2"}, "/s", "/x"); cmp.Diff([]string{"/x/1/fs", "/x/2"}, got) != "" {
		t.Errorf("%q", got)
	}
}

func TestMappings(t *testing.T) {
	t.Parallel()
	got, err := mappings("0:100000:65536,65536:7:1")
	if err != nil || len(got) != 2 || got[0].HostID != 100000 || got[1].ContainerID != 65536 || got[1].Size != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := mappings("0:1"); err == nil {
		t.Error("no error")
	}
}

// TestMount: an overlay is mounted with more layers than the kernel takes in one page of options, also for
// the users of a user namespace, and unmounted with what is below it.
func TestMount(t *testing.T) {
	roottest.Require(t)
	for _, tc := range []struct {
		layers  int
		maps    []string
		owner   uint32
		stacked int // file systems mounted above
	}{{layers: 2}, {layers: 120, stacked: 2}, {layers: 480}, {layers: 3, stacked: 1, maps: []string{"uidmap=0:100000:10", "gidmap=0:100000:10"}, owner: 100000}} {
		t.Run(fmt.Sprint(tc.layers), func(t *testing.T) {
			dir, err := os.MkdirTemp("/var/tmp", "layers-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			var lower []string
			for i := range tc.layers {
				layer := filepath.Join(dir, "snapshots", fmt.Sprint(i), "fs")
				lower = append(lower, layer)
				if err := errors.Join(os.MkdirAll(layer, 0o755), os.WriteFile(filepath.Join(layer, fmt.Sprint("f", i)), nil, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			target := filepath.Join(dir, "rootfs")
			if err := os.Mkdir(target, 0o755); err != nil {
				t.Fatal(err)
			}
			err = theReaper(t).Mount(ttrpc.Mount{Type: "overlay", Source: "overlay", Options: append(tc.maps, "lowerdir="+strings.Join(lower, ":"))}, target)
			if err != nil {
				t.Fatal(err)
			}
			files, err := os.ReadDir(target)
			if err != nil || len(files) != tc.layers {
				t.Errorf("%d files, %v", len(files), err)
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(target, "f0"), &st); err != nil || st.Uid != tc.owner {
				t.Errorf("owner %d, %v", st.Uid, err)
			}
			for range tc.stacked {
				if err := unix.Mount("tmpfs", target, "tmpfs", 0, ""); err != nil {
					t.Fatal(err)
				}
			}
			if err := Unmount(target); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is left: %v", err)
			}
		})
	}
	if err := Unmount(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
}

// TestMountVolatile: the end of a container does not wait for the disk, and its layer can be mounted
// again if its creation was cut off.
func TestMountVolatile(t *testing.T) {
	roottest.Require(t)
	dir, err := os.MkdirTemp("/var/tmp", "layers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := ttrpc.Mount{Type: "overlay", Source: "overlay"}
	for _, name := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		m.Options = append(m.Options, name+"dir="+filepath.Join(dir, name))
	}
	target := filepath.Join(dir, "rootfs")
	for _, volatile := range []bool{true, false} {
		if err := os.Mkdir(target, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := theReaper(t).Mount(m, target); err != nil {
			t.Fatal(err)
		}
		mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(target))
		if err != nil || len(mounts) != 1 || strings.Contains(mounts[0].VFSOptions, "volatile") != volatile {
			t.Errorf("%v, %+v, want volatile %t", err, mounts, volatile)
		}
		if err := Unmount(target); err != nil {
			t.Fatal(err)
		}
	}
}
