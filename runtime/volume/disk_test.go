package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/testing/exectest"
)

func diskVolume(name string, s v1.GCEPersistentDiskVolumeSource) v1.Volume {
	return volume(name, v1.VolumeSource{GCEPersistentDisk: &s})
}

func TestDisks(t *testing.T) {
	t.Parallel()
	pod := testPod(
		diskVolume("a", v1.GCEPersistentDiskVolumeSource{PDName: "data"}),
		diskVolume("b", v1.GCEPersistentDiskVolumeSource{PDName: "data", Partition: 3, ReadOnly: true}),
	)
	m, r := testManager(t)
	for range 2 {
		if err := m.Setup(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"disk /dev/disk/by-id/google-data read-only=false", "disk /dev/disk/by-id/google-data-part3 read-only=true"}
	if diff := cmp.Diff(want, r.calls[1:]); diff != "" {
		t.Error(diff)
	}
	c := &v1.Container{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "a", MountPath: "/a"}, {Name: "b", MountPath: "/b"}}}
	mounts, err := m.Mounts(pod, c, nil)
	if err != nil || mounts[0].Options[2] != "rw" || mounts[1].Options[2] != "ro" {
		t.Errorf("mounts %+v, %v", mounts, err)
	}
	if err := m.Teardown(t.Context(), pod); err != nil || len(r.mounted) > 0 {
		t.Errorf("Teardown: %v, left %q", err, r.mounted)
	}
	for _, name := range []string{"", "a/../../sda"} {
		err := m.Setup(t.Context(), testPod(diskVolume("a", v1.GCEPersistentDiskVolumeSource{PDName: name})))
		if err == nil || !failure.IsPermanent(err) || !strings.Contains(err.Error(), "not a valid name") {
			t.Errorf("pdName %q: %v", name, err)
		}
	}
}

func TestPrepareDisk(t *testing.T) {
	t.Parallel()
	const check, format = "fsck.ext4 -p /dev/x", "mkfs.ext4 -q /dev/x"
	for _, test := range []struct {
		state    diskState
		readOnly bool
		want     string // a command, or part of an error
		retry    bool
	}{
		{state: diskState{content: diskEmpty}, want: format},
		{state: diskState{content: diskEmpty}, readOnly: true, want: format},
		{state: diskState{content: diskExt}, want: check},
		{state: diskState{content: diskExt}, readOnly: true, want: check},
		{state: diskState{content: diskExt, readOnly: true}, readOnly: true},
		{state: diskState{content: diskExt, busy: true}, readOnly: true},
		{state: diskState{content: diskUnknown}, want: "neither empty nor has it an ext4 file system"},
		{state: diskState{content: diskUnknown, busy: true}, readOnly: true, want: "neither empty nor has it an ext4 file system"},
		{state: diskState{content: diskExt, readOnly: true}, want: "attached read-only"},
		{state: diskState{content: diskEmpty, readOnly: true}, readOnly: true, want: "is empty, and attached read-only"},
		{state: diskState{content: diskExt, busy: true}, want: "is in use", retry: true},
		{state: diskState{content: diskEmpty, busy: true}, want: "is in use", retry: true},
	} {
		command, err := test.state.prepare("/dev/x", test.readOnly)
		got := strings.Join(command, " ")
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != test.want || !strings.Contains(got, test.want) || err != nil && failure.IsPermanent(err) == test.retry {
			t.Errorf("%+v, readOnly %t: %v, %v", test.state, test.readOnly, command, err)
		}
	}
}

func TestContentOfDisks(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	disk := func(at int, with ...byte) []byte {
		return append(append(make([]byte, at), with...), make([]byte, size-at-len(with))...)
	}
	ext := binary.LittleEndian.AppendUint16(nil, 0xef53)
	for name, test := range map[string]struct {
		disk []byte
		want diskContent
	}{
		"nothing":                      {disk(0), diskEmpty},
		"a small disk":                 {make([]byte, 512), diskEmpty},
		"no bytes at all":              {nil, diskEmpty},
		"ext":                          {disk(1080, ext...), diskExt},
		"a boot sector":                {disk(510, 0x55, 0xaa), diskUnknown},
		"XFS":                          {disk(0, []byte("XFSB")...), diskUnknown},
		"btrfs":                        {disk(64<<10+64, []byte("_BHRfS_M")...), diskUnknown},
		"the other copy of partitions": {disk(size-512, []byte("EFI PART")...), diskUnknown},
		"ext's mark elsewhere":         {disk(1082, ext...), diskUnknown},
	} {
		if got, err := contentOf(bytes.NewReader(test.disk), int64(len(test.disk))); err != nil || got != test.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, test.want)
		}
	}
}

func TestDiskTools(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for code, want := range map[string]string{
		"0": "", "1": "",
		"4": "fsck.ext4 -p /dev/x: there are errors that only a person can correct, with fsck.ext4: bad block",
		"8": "fsck.ext4 -p /dev/x: exit status 8: bad block",
	} {
		exectest.Write(t, filepath.Join(dir, "fsck.ext4"), "#!/bin/sh\necho bad block\nexit "+code+"\n")
		canceled, cancel := context.WithCancel(t.Context())
		cancel() // it runs to its end all the same
		err := runDiskTool(canceled, []string{"fsck.ext4", "-p", "/dev/x"})
		if got := ""; err != nil && err.Error() != want || err == nil && want != got || failure.IsPermanent(err) != (code == "4") {
			t.Errorf("exit code %s: %v", code, err)
		}
	}
	if err := runDiskTool(t.Context(), []string{"no.such.tool"}); err == nil || err.Error() != "no.such.tool is not installed: install e2fsprogs" {
		t.Errorf("no tool: %v", err)
	}
}
