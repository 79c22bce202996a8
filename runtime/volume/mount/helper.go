package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoHelper says that the machine cannot mount a kind of file system, since the program
// that does it is not installed.
var ErrNoHelper = errors.New("the mount helper is not installed")

// Remote is a file system that only a helper program (mount.nfs) can mount.
type Remote struct {
	Kind    string // nfs, say
	Source  string
	Target  string
	Options []string
}

// MountRemote runs the helper as mount(8) does.
func (Host) MountRemote(ctx context.Context, r Remote) error {
	path, err := helper("mount." + r.Kind)
	if err != nil {
		return err
	}
	args := []string{r.Source, r.Target}
	if len(r.Options) > 0 {
		args = append(args, "-o", strings.Join(r.Options, ","))
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(path), r.Source, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// HasHelper says whether the machine has the program that mounts the kind of file system.
func HasHelper(kind string) bool {
	_, err := helper("mount." + kind)
	return err == nil
}

// helper finds the program, also where an ordinary PATH does not lead.
func helper(name string) (string, error) {
	for _, candidate := range []string{name, "/sbin/" + name, "/usr/sbin/" + name} {
		path, err := exec.LookPath(candidate)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrNoHelper)
}
