package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// file describes the file at a path; everything except Link is about a link's target.
type file struct {
	Type     string   `json:"type,omitempty"` // file, dir, fifo, socket, char, block
	Mode     string   `json:"mode,omitempty"` // octal, with setuid, setgid and sticky bits: 2775
	UID      uint32   `json:"uid"`
	GID      uint32   `json:"gid"`
	Size     int64    `json:"size"`
	Link     string   `json:"link,omitempty"`
	Writable bool     `json:"writable"` // by this process
	Content  string   `json:"content,omitempty"`
	Entries  []string `json:"entries,omitempty"`
	Error    string   `json:"error,omitempty"`
}

func describe(p string) file {
	var f file
	f.Link, _ = os.Readlink(p)
	info, err := os.Stat(p)
	if err != nil {
		f.Error = reason(err)
		return f
	}
	f.Type, f.Size = kind(info.Mode()), info.Size()
	f.Writable = unix.Access(p, unix.W_OK) == nil
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.UID, f.GID, f.Mode = s.Uid, s.Gid, fmt.Sprintf("%04o", s.Mode&0o7777)
	}
	switch f.Type {
	case "file":
		f.Content, err = head(p)
		f.Error = reason(err)
	case "dir":
		entries, err := os.ReadDir(p)
		f.Error = reason(err)
		for _, e := range entries {
			// The directory and link used to replace the files of a volume atomically.
			if !strings.HasPrefix(e.Name(), "..") {
				f.Entries = append(f.Entries, e.Name())
			}
		}
	}
	return f
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "dir"
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeCharDevice != 0:
		return "char"
	case m&fs.ModeDevice != 0:
		return "block"
	}
	return "file"
}

// reason returns an error's cause without the path.
func reason(err error) string {
	var cause syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &cause):
		return cause.Error()
	}
	return err.Error()
}

// head returns the first 4 KiB of a file.
func head(p string) (string, error) {
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(b), err
}
