// Packshim builds the shim and puts it, compressed, where package containerd embeds it. Run it
// from the root of the module before building the main program. In another directory it also
// writes overlay.json, for the flag -overlay of go build.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"

	"github.com/klauspost/compress/zstd"

	"github.com/runonce/runonce/runtime/shim/protocol"
)

const embedded = "runtime/containerd/shim"

func main() {
	arch := flag.String("goarch", goruntime.GOARCH, "architecture to build for")
	out := flag.String("o", embedded, "directory to write to")
	flag.Parse()
	if err := errors.Join(pack(context.Background(), *arch, *out), writeOverlay(*out)); err != nil {
		fmt.Fprintln(os.Stderr, "packshim:", err)
		os.Exit(1)
	}
}

func pack(ctx context.Context, arch, out string) error {
	dir, err := os.MkdirTemp("", "pack-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built := filepath.Join(dir, protocol.Program)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w",
		"-o", built, "./runtime/shim/runonce-shim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the shim: %w", err)
	}
	program, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(program)
	sum := protocol.Sum{SHA256: hex.EncodeToString(hash[:]), Size: int64(len(program))}
	if have, err := os.ReadFile(filepath.Join(out, protocol.SumName)); err == nil && string(have) == sum.String() {
		return nil
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, protocol.PackedName), z.EncodeAll(program, nil), 0o644); err != nil {
		return err
	}
	// Last, since it says that the other file is complete.
	return os.WriteFile(filepath.Join(out, protocol.SumName), []byte(sum.String()), 0o644)
}

// writeOverlay has a build embed the files of another directory.
func writeOverlay(dir string) error {
	if dir == embedded {
		return nil
	}
	replace := map[string]string{}
	for _, name := range []string{protocol.PackedName, protocol.SumName} {
		from, err1 := filepath.Abs(filepath.Join(embedded, name))
		to, err2 := filepath.Abs(filepath.Join(dir, name))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		replace[from] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
}
