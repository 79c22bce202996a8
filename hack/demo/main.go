// Command demo shows runonce at work and checks every exit code and answer on the way. It
// keeps to directories of its own and leaves nothing behind. It needs root; `make demo`
// builds what it runs.
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

	"github.com/runonce/runonce/hack/testimages"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := demo(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
	fmt.Println("# Everything came out as it should.")
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
	if err := makeImages(ctx); err != nil {
		return err
	}
	s, err := newSession()
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		defer cancel()
		err = errors.Join(err, s.close(end))
	}()
	fmt.Printf("# Every command below also has %s,\n# so that nothing else on this machine is touched.\n\n", strings.Join(s.dirs, " "))
	for _, st := range story() {
		if err := s.tell(ctx, st); err != nil {
			return err
		}
	}
	return nil
}

func makeImages(ctx context.Context) error {
	fmt.Println("# The images are made here, from the programs in testdata/images:")
	dir := filepath.Join("bin", "demo-images")
	images, err := testimages.Write(ctx, dir, "box", "web")
	if err != nil {
		return err
	}
	for _, img := range images {
		fmt.Printf("%-18s %s.tar\n", img.Ref, filepath.Join(dir, img.Name))
	}
	fmt.Println()
	return nil
}
