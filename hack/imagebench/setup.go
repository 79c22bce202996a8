package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
)

const (
	floor = "ctr"
	ref   = "registry.example/large:1"
	// layers is how many the image has.
	layers = 4
	// ticks of a process's CPU time in a second (USER_HZ).
	ticks = 100
)

// setup is what all tools use.
type setup struct {
	dir, runonce, archive, host string

	bin     string // of ctr
	daemon  *daemon.Daemon
	env     []string
	podman  string
	cleanup []func() error
}

// job is one thing that all tools do.
type job struct {
	name  string
	tools []tool
}

type tool struct {
	name           string
	command, clean []string
}

// prepare writes the image, starts the daemon and the registry, and pushes the image. The caller
// calls stop, also after an error.
func (s *setup) prepare(ctx context.Context, root string, size int) (stop func() error, err error) {
	stop = func() (err error) {
		for _, f := range s.cleanup {
			err = errors.Join(err, f())
		}
		return err
	}
	if err := s.findTools(); err != nil {
		return stop, err
	}
	if err := s.writeImage(size); err != nil {
		return stop, err
	}
	if s.bin, err = daemon.Find(ctx, root, daemon.Current); err != nil {
		return stop, err
	}
	if s.daemon, err = daemon.Start(ctx, s.bin, filepath.Join(s.dir, "d")); err != nil {
		return stop, err
	}
	s.cleanup = append(s.cleanup, s.daemon.Stop)
	if err := s.serve(ctx); err != nil {
		return stop, err
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: large}\nspec: {containers: [{name: c, image: %q}]}\n", s.host+"/large:1")
	if err := os.WriteFile(s.pod(), []byte(text), 0o600); err != nil {
		return stop, fmt.Errorf("writing the pod of the image: %w", err)
	}
	_, err = s.command(ctx, "skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "oci-archive:"+s.archive, "docker://"+s.host+"/large:1")
	return stop, err
}

// findTools looks for skopeo and podman, and writes the settings that they need.
func (s *setup) findTools() error {
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		return err
	}
	s.podman, _ = exec.LookPath("podman")
	// hack/setup.sh unpacks them beside their libraries.
	var libraries []string
	for _, program := range []string{skopeo, s.podman} {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(program), "../lib/*-linux-gnu"))
		if err != nil {
			return err
		}
		libraries = append(libraries, found...)
	}
	s.env = []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":"), "HOME=" + s.dir}
	policy := filepath.Join(s.dir, ".config/containers/policy.json")
	return errors.Join(os.MkdirAll(filepath.Dir(policy), 0o700),
		os.WriteFile(policy, []byte(`{"default": [{"type": "insecureAcceptAnything"}]}`), 0o600))
}

// writeImage writes an archive of an image with a quarter of its data repeated, as in real layers.
func (s *setup) writeImage(size int) error {
	img := ociimage.Image{Ref: ref, Compression: ociimage.Gzip}
	source := rand.NewChaCha8(sha256.Sum256([]byte(ref)))
	for layer := range layers {
		data := make([]byte, size*1e6/layers)
		for i := 0; i+8 <= len(data)*3/4; i += 8 {
			binary.LittleEndian.PutUint64(data[i:], source.Uint64())
		}
		img.Layers = append(img.Layers, []ociimage.File{{Path: fmt.Sprintf("/data%d", layer), Body: data}})
	}
	f, err := os.Create(s.archive)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	return errors.Join(ociimage.Build(f, img), f.Close())
}

// serve starts a registry.
func (s *setup) serve(ctx context.Context) (err error) {
	if s.host, err = registry.FreeAddress(ctx); err != nil {
		return err
	}
	config := filepath.Join(s.dir, "registry.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/registry}}\nhttp: {addr: %s}\n", s.dir, s.host)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("configuring the registry: %w", err)
	}
	stop, err := registry.Serve(ctx, config, s.host, filepath.Join(s.dir, "registry.log"))
	if err != nil {
		return err
	}
	s.cleanup = append(s.cleanup, func() error {
		stop()
		return nil
	})
	return nil
}

// daemonCPU returns the CPU time that the daemon and its children have used, which may unpack layers.
func (s *setup) daemonCPU() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.daemon.Pid))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of the daemon: %w", err)
	}
	// After the name, which may have spaces, come the fields from the third on: utime is the 14th.
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	total := 0
	for _, text := range fields[11:15] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of the daemon: %w", err)
		}
		total += n
	}
	return time.Duration(total) * time.Second / ticks, nil
}

func (s *setup) ctr(args ...string) []string {
	return append([]string{filepath.Join(s.bin, "ctr"), "-a", s.daemon.Socket, "images"}, args...)
}

func (s *setup) pod() string { return filepath.Join(s.dir, "pod.yaml") }

func (s *setup) store(name string) string { return filepath.Join(s.dir, "store", name) }

// embedded returns a command of runonce with a root of its own.
func (s *setup) embedded(args ...string) []string {
	return slices.Concat([]string{s.runonce, "images"}, args, []string{"--root", s.store("root"), "--state", s.store("state"), "--quiet"})
}

// importJob is without unpacking but for podman, which cannot do without. runonce unpacks an image
// when a pod needs it first.
func (s *setup) importJob() job {
	j := job{"import", []tool{
		{floor, s.ctr("import", "--no-unpack", s.archive), s.ctr("rm", "--sync", ref)},
		{"runonce", s.embedded("import", s.archive), nil},
		{"skopeo", []string{"skopeo", "--insecure-policy", "copy", "oci-archive:" + s.archive, "dir:" + s.store("skopeo")}, nil},
	}}
	if s.podman != "" {
		j.tools = append(j.tools, tool{"podman", []string{s.podman, "--root", s.store("podman"), "--runroot", s.store("run"), "load", "-i", s.archive}, nil})
	}
	return j
}

func (s *setup) pullJob() job {
	image := s.host + "/large:1"
	j := job{"pull", []tool{
		{floor, s.ctr("pull", "--plain-http", image), s.ctr("rm", "--sync", image)},
		{"runonce", s.embedded("pull", s.pod()), nil},
		{"skopeo", []string{"skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "docker://" + image, "dir:" + s.store("skopeo")}, nil},
	}}
	if s.podman != "" {
		j.tools = append(j.tools, tool{"podman", []string{s.podman, "--root", s.store("podman"), "--runroot", s.store("run"), "pull", "--tls-verify=false", image}, nil})
	}
	return j
}
