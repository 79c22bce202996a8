package main

import (
	"fmt"
	"io"
)

// File types, as in stat(2).
const (
	typeDirectory = 0o040000
	typeDevice    = 0o020000
	typeFile      = 0o100000
)

// cpio writes an initramfs archive in the "newc" format.
type cpio struct {
	w     io.Writer
	files int
}

func (c *cpio) directory(name string) error { return c.entry(name, typeDirectory|0o755, [2]int{}, nil) }

func (c *cpio) file(name string, mode int, body []byte) error {
	return c.entry(name, typeFile|mode, [2]int{}, body)
}

func (c *cpio) device(name string, major, minor int) error {
	return c.entry(name, typeDevice|0o600, [2]int{major, minor}, nil)
}

func (c *cpio) end() error { return c.entry("TRAILER!!!", 0, [2]int{}, nil) }

func (c *cpio) entry(name string, mode int, device [2]int, body []byte) error {
	c.files++
	// Inode, mode, owner, group, links, time, size, device, device of a special file, length
	// of the name with its NUL, checksum. Header with name, and body, are padded to four bytes.
	header := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		c.files, mode, 0, 0, 1, 0, len(body), 0, 0, device[0], device[1], len(name)+1, 0, name)
	for _, part := range [][]byte{[]byte(header), body} {
		padding := make([]byte, -len(part)&3)
		if _, err := c.w.Write(append(part[:len(part):len(part)], padding...)); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}
