// Command demo runs runonce on testdata/demo and checks every exit code and output. It uses its
// own directories and removes them at the end. It needs root; `make demo` builds the
// program it runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/runonce/runonce/internal/testing/testimages"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := demo(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("# The demo has passed.")
}

func demo(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("containers need root: run make demo as root")
	}
	root, err := testimages.Root()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("entering the project's directory: %w", err)
	}
	out := &transcript{}
	if err := makeImages(ctx, out); err != nil {
		return err
	}
	s, err := newSession(out)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		defer cancel()
		err = errors.Join(err, s.close(end))
	}()
	out.printf("# Every command below also gets %s,\n# so that nothing else on this machine is affected.\n\n", strings.Join(s.dirs, " "))
	for _, st := range steps() {
		if err := s.play(ctx, st); err != nil {
			return err
		}
	}
	return compare(filepath.Join("docs", "demo.md"), out.text.String())
}

func makeImages(ctx context.Context, out *transcript) error {
	out.printf("# Building the images from the programs in testdata/images:\n")
	dir := filepath.Join("bin", "demo-images")
	images, err := testimages.Write(ctx, dir, "box", "web")
	if err != nil {
		return err
	}
	for _, img := range images {
		out.printf("%-18s %s.tar\n", img.Ref, filepath.Join(dir, img.Name))
	}
	out.printf("\n")
	return nil
}
