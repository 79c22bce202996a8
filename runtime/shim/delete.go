package shim

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/runonce/runonce/runtime/shim/oci"
	"github.com/runonce/runonce/runtime/shim/ttrpc"
)

// remove is the command "delete": it removes what a dead shim has left of a container, and
// prints how that ended. containerd also runs it after a container has ended in an orderly way,
// when nothing is left to do, and perhaps already in the bundle of the next one of that name.
func remove(ctx context.Context, a arguments) error {
	bundle := cmp.Or(a.bundle, ".")
	owner, err := oci.ReadOwner(bundle)
	switch {
	case err == nil && !owner.Runs():
		err = clean(ctx, owner.Options, a.namespace, bundle, a.id)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		// Without an answer containerd would keep the bundle.
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
	}
	resp := ttrpc.DeleteResponse{Exit: ttrpc.Exit{Status: 128 + uint32(syscall.SIGKILL), At: time.Now()}}
	if text, err := os.ReadFile(filepath.Join(bundle, "init.pid")); err == nil {
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		resp.PID = uint32(pid)
	}
	_, err = os.Stdout.Write(ttrpc.Marshal(&resp))
	return err
}

// clean deletes the container with its OCI runtime, and unmounts its root file system.
func clean(ctx context.Context, o ttrpc.Options, namespace, bundle, id string) error {
	reaper, err := oci.NewReaper()
	if err != nil {
		return err
	}
	r := oci.NewRuntime(o, namespace, reaper)
	// runc and similar runtimes keep a container's state in a directory of its name.
	if _, serr := os.Stat(filepath.Join(r.Root, id)); !errors.Is(serr, fs.ErrNotExist) {
		ctx, cancel := context.WithTimeout(ctx, oci.EndLimit)
		defer cancel()
		err = r.DeleteForced(ctx, id)
	}
	return errors.Join(err, oci.Unmount(filepath.Join(bundle, "rootfs")))
}

// info describes the OCI runtime that the options on standard input name.
func info(ctx context.Context) error {
	input, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	if err != nil {
		return err
	}
	i := ttrpc.RuntimeInfo{Name: "io.containerd.runc.v2"}
	var o ttrpc.Options
	if err := errors.Join(ttrpc.Unmarshal(input, &i.Options), ttrpc.Unmarshal(i.Options.Value, &o)); err != nil {
		return err
	}
	reaper, err := oci.NewReaper()
	if err != nil {
		return err
	}
	r := oci.NewRuntime(o, "", reaper)
	// Not every runtime has this command.
	if out, err := r.Run(ctx, oci.Command{Args: []string{"features"}}); err == nil {
		i.Features = ttrpc.Any{TypeURL: "types.containerd.io/opencontainers/runtime-spec/1/features/Features", Value: out}
	}
	_, err = os.Stdout.Write(ttrpc.Marshal(&i))
	return err
}
