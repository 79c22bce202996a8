package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountAt mounts a file system in memory.
func mountAt(args []string) error {
	if len(args) != 1 {
		return errors.New("want DIR")
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	return unix.Mount("box", args[0], "tmpfs", 0, "")
}

// swap makes PATH by turns a directory and a link to TARGET, as fast as it can: who looks
// at PATH and then uses it may find something else there.
func swap(args []string) error {
	if len(args) != 2 {
		return errors.New("want PATH TARGET")
	}
	path, link := args[0], filepath.Join(filepath.Dir(args[0]), ".link")
	if err := errors.Join(os.MkdirAll(path, 0o777), os.Symlink(args[1], link)); err != nil {
		return err
	}
	end := ended()
	for {
		select {
		case <-end:
			return nil
		default:
		}
		if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
	}
}

// link puts a link to TARGET in the place of PATH.
func link(args []string) error {
	if len(args) != 2 {
		return errors.New("want PATH TARGET")
	}
	return errors.Join(os.RemoveAll(args[0]), os.Symlink(args[1], args[0]))
}

// fill writes so many mebibytes that they take room on the disk.
func fill(args []string) error {
	if len(args) != 2 {
		return errors.New("want FILE MIB")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i)
	}
	for range n {
		if _, err := f.Write(block); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	fmt.Println("filled")
	return nil
}
