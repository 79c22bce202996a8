package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// archive is as much of tar as kubectl cp uses: "tar cf - PATH..." and "tar -xmf - -C DIR".
func archive(args []string) error {
	if len(args) < 2 || args[1] != "-" {
		return errors.New("usage: tar cf - PATH... | tar xf - [-C DIR]")
	}
	if strings.Contains(args[0], "c") {
		return pack(os.Stdout, args[2:])
	}
	dir := "."
	if i := slices.Index(args, "-C"); i > 0 && i+1 < len(args) {
		dir = args[i+1]
	}
	return unpack(os.Stdin, dir)
}

func pack(to io.Writer, paths []string) error {
	out := tar.NewWriter(to)
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			h, err := tar.FileInfoHeader(info, "")
			if err != nil {
				return err
			}
			h.Name = strings.TrimPrefix(path, "/")
			if err := out.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil {
				_, err = out.Write(data)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return out.Close()
}

func unpack(from io.Reader, dir string) error {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the archive: %w", err)
		}
		path := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var data []byte
			if data, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(path, data, fs.FileMode(h.Mode).Perm())
			}
		}
		if err != nil {
			return err
		}
	}
}
