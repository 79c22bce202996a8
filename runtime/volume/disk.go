package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
)

// disk mounts a persistent disk of Compute Engine that is attached to the machine.
func (m *Manager) disk(ctx context.Context, pod *v1.Pod, s source) error {
	device, err := diskDevice(s.GCEPersistentDisk)
	if err != nil {
		return err
	}
	if err := makeDir(s.path, podDirMode); err != nil {
		return err
	}
	mounted, err := m.Mounter.Mounted(s.path)
	if err == nil && !mounted {
		err = m.Mounter.MountDisk(ctx, device, s.path, s.readOnly)
	}
	if err != nil || s.readOnly {
		return err
	}
	return setVolumeOwnership(pod, s.path, s.readOnly, true)
}

// diskDevice returns the path that udev gives a disk, or a partition of it, by the name with which it is attached.
func diskDevice(s *v1.GCEPersistentDiskVolumeSource) (string, error) {
	if s.PDName == "" || strings.Contains(s.PDName, "/") {
		return "", failure.FailedMountf("gcePersistentDisk %q: not a valid name", s.PDName)
	}
	device := "/dev/disk/by-id/google-" + s.PDName
	if s.Partition > 0 {
		device += fmt.Sprintf("-part%d", s.Partition)
	}
	return device, nil
}

// diskState is what is known of a block device before it is mounted.
type diskState struct {
	readOnly bool // it is attached so
	busy     bool // it is mounted, or something else has it to itself
	content  diskContent
}

// diskContent is what a disk has.
type diskContent string

const (
	diskEmpty   diskContent = "nothing"
	diskExt     diskContent = "ext"
	diskUnknown diskContent = "something else"
)

// prepare returns the command that the device needs before it is mounted, nil if none, or why it cannot be.
func (d diskState) prepare(device string, readOnly bool) ([]string, error) {
	switch {
	case d.readOnly && !readOnly:
		return nil, failure.FailedMountf("%s is attached read-only: attach it read-write, or mount it readOnly", device)
	case d.content == diskUnknown:
		return nil, failure.FailedMountf("%s is neither empty nor has it an ext4 file system: make one with mkfs.ext4 if nothing on it is needed", device)
	case d.readOnly && d.content == diskEmpty:
		return nil, failure.FailedMountf("%s is empty, and attached read-only", device)
	case d.busy && !readOnly:
		return nil, passing("%s is in use: unmount it, or stop the pod that has it", device)
	case d.busy, d.readOnly:
		return nil, nil
	case d.content == diskEmpty:
		return []string{"mkfs.ext4", "-q", device}, nil
	}
	return []string{"fsck.ext4", "-p", device}, nil
}

// passing returns an error that may pass within seconds: the machine has just been started, or a pod is just ending.
func passing(format, device string) error {
	return failure.Limited(hostPathRetries, &failure.Error{Why: failure.ReasonFailedMount, Err: fmt.Errorf(format, device)})
}

// MountDisk makes an ext4 file system on an empty disk, or checks the one that there is, and mounts it.
func (h HostMounts) MountDisk(ctx context.Context, device, target string, readOnly bool) error {
	state, err := inspectDisk(device)
	if errors.Is(err, fs.ErrNotExist) {
		err = passing("%s does not exist: attach the disk with this device name", device)
	}
	if err != nil {
		return err
	}
	command, err := state.prepare(device, readOnly)
	if err != nil {
		return err
	}
	if command != nil {
		if err := runDiskTool(ctx, command); err != nil {
			return err
		}
	}
	var flags uintptr
	if readOnly {
		flags = unix.MS_RDONLY
	}
	return h.Mount(device, target, "ext4", flags, "")
}

// inspectDisk reads the state of a block device.
func inspectDisk(device string) (diskState, error) {
	var d diskState
	info, err := os.Stat(device)
	if err != nil {
		return d, err
	}
	if info.Mode()&fs.ModeDevice == 0 || info.Mode()&fs.ModeCharDevice != 0 {
		return d, failure.FailedMountf("%s is not a block device", device)
	}
	f, err := os.OpenFile(device, os.O_RDONLY|os.O_EXCL, 0) // O_EXCL fails if the device is in use
	if errors.Is(err, unix.EBUSY) {
		d.busy = true
		f, err = os.Open(device)
	}
	if err != nil {
		return d, err
	}
	defer func() { _ = f.Close() }()
	ro, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	if err != nil {
		return d, fmt.Errorf("asking whether %s is read-only: %w", device, err)
	}
	d.readOnly = ro != 0
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return d, err
	}
	d.content, err = contentOf(f, size)
	return d, err
}

// contentOf says what a disk has. One without an ext file system is empty only if its first and its last mebibyte are:
// there are the marks of partitions, RAID, LVM and all file systems.
func contentOf(disk io.ReaderAt, size int64) (diskContent, error) {
	const (
		margin  = 1 << 20
		magicAt = 1024 + 56 // of the superblock of ext2, ext3 and ext4
		magic   = 0xef53
	)
	head, tail := make([]byte, min(size, margin)), make([]byte, min(size, margin))
	if _, err := disk.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if _, err := disk.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	zero := make([]byte, len(head))
	switch {
	case len(head) > magicAt+2 && binary.LittleEndian.Uint16(head[magicAt:]) == magic:
		return diskExt, nil
	case bytes.Equal(head, zero) && bytes.Equal(tail, zero):
		return diskEmpty, nil
	}
	return diskUnknown, nil
}

// runDiskTool runs a program that must not be stopped halfway, neither with its caller nor by a signal of the terminal.
func runDiskTool(ctx context.Context, command []string) error {
	path, err := helper(command[0])
	if errors.Is(err, exec.ErrNotFound) {
		return failure.FailedMountf("%s is not installed: install e2fsprogs", command[0])
	}
	if err != nil {
		return err
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, command[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &output, &output, &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Run()
	const corrected, uncorrected = 1, 4 // fsck(8)
	switch text := strings.Join(command, " "); {
	case err == nil, command[0] == "fsck.ext4" && cmd.ProcessState.ExitCode() == corrected:
		return nil
	case command[0] == "fsck.ext4" && cmd.ProcessState.ExitCode() == uncorrected:
		return failure.FailedMountf("%s: there are errors that only a person can correct, with fsck.ext4: %s", text, strings.TrimSpace(output.String()))
	default:
		return fmt.Errorf("%s: %w: %s", text, err, strings.TrimSpace(output.String()))
	}
}
