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

// mountAt mounts a tmpfs.
func mountAt(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: mount DIR")
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	return unix.Mount("box", args[0], "tmpfs", 0, "")
}

// swap replaces PATH by a directory and by a link to TARGET in turns, as fast as it can, to
// provoke races between checking PATH and using it.
func swap(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: swap PATH TARGET")
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

// link replaces PATH by a link to TARGET.
func link(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: link PATH TARGET")
	}
	return errors.Join(os.RemoveAll(args[0]), os.Symlink(args[1], args[0]))
}

// fill writes the given number of mebibytes, in a way that takes up disk space.
func fill(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: fill FILE MIB")
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
