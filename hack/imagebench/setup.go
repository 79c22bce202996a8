package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/internal/testing/ociimage"
	"github.com/runonce/runonce/internal/testing/registry"
)

const (
	reference = "ctr"
	ref       = "registry.example/large:1"
	// raw is a file with as many bytes as the layers have.
	raw = "raw"
	// layers is how many the image has.
	layers = 4
)

// setup is what all tools use.
type setup struct {
	dir, runonce, host string
	compression        ociimage.Compression

	bin     string // of ctr
	daemon  *daemon.Daemon
	env     []string
	podman  string
	nerdctl string
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
	floor          bool // of the machine: what it takes to write, or to decompress, the bytes of the image
}

// prepare writes the images, starts the daemon and the registry, and pushes the images. The caller
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
	if err := s.writeImages(ctx, size); err != nil {
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
	for _, c := range compressions {
		s.compression = c
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: large}\nspec: {containers: [{name: c, image: %q}]}\n", s.image())
		if err := os.WriteFile(s.pod(), []byte(text), 0o600); err != nil {
			return stop, fmt.Errorf("writing the pod of the image: %w", err)
		}
		push := []string{"skopeo", "--insecure-policy", "copy", "--preserve-digests", "--dest-tls-verify=false", "oci-archive:" + s.archive(), "docker://" + s.image()}
		if _, err := s.command(ctx, push...); err != nil {
			return stop, err
		}
	}
	return stop, nil
}

// compressions are those of the images.
var compressions = []ociimage.Compression{ociimage.Gzip, ociimage.Zstd}

// decompressors are the fastest programs for them.
var decompressors = map[ociimage.Compression]string{ociimage.Gzip: "igzip", ociimage.Zstd: "zstd"}

func (s *setup) archive() string { return filepath.Join(s.dir, string(s.compression)+".tar") }

func (s *setup) image() string { return fmt.Sprintf("%s/large:%s", s.host, s.compression) }

// findTools looks for skopeo and podman, and writes the settings that they need.
func (s *setup) findTools() error {
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		return err
	}
	s.podman, _ = exec.LookPath("podman")
	s.nerdctl, _ = exec.LookPath("nerdctl")
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

// writeImages writes archives of an image whose layers have three quarters of text, of words of which some are frequent,
// and one quarter that repeats, and its bytes as a file, also compressed.
func (s *setup) writeImages(ctx context.Context, size int) error {
	files := make([][]ociimage.File, 0, layers)
	source := rand.New(rand.NewChaCha8(sha256.Sum256([]byte(ref))))
	words := make([][]byte, 1<<15)
	for i := range words {
		words[i] = make([]byte, 3+source.IntN(12))
		for j := range words[i] {
			words[i][j] = byte(source.IntN(256))
		}
	}
	frequent := rand.NewZipf(source, 1.1, 8, uint64(len(words)-1))
	for layer := range layers {
		data := make([]byte, 0, size*1e6/layers)
		for len(data) < cap(data)*3/4 {
			data = append(data, words[frequent.Uint64()]...)
		}
		files = append(files, []ociimage.File{{Path: fmt.Sprintf("/data%d", layer), Body: data[:cap(data)]}})
	}
	f, err := os.Create(filepath.Join(s.dir, raw))
	for _, layer := range files {
		if err == nil {
			_, err = f.Write(layer[0].Body)
		}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the bytes of the image: %w", err)
	}
	for _, s.compression = range compressions {
		f, err := os.Create(s.archive())
		if err != nil {
			return fmt.Errorf("writing the image: %w", err)
		}
		err = errors.Join(ociimage.Build(f, ociimage.Image{Ref: ref, Compression: s.compression, Layers: files}), f.Close())
		if err != nil {
			return fmt.Errorf("writing the image: %w", err)
		}
		if _, err := s.command(ctx, decompressors[s.compression], "-k", filepath.Join(s.dir, raw), "-o", s.compressed()); err != nil {
			return err
		}
	}
	return nil
}

// compressed is the file with the bytes of the image, compressed.
func (s *setup) compressed() string { return filepath.Join(s.dir, raw+"."+string(s.compression)) }

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

func (s *setup) ctr(args ...string) []string {
	return append([]string{filepath.Join(s.bin, "ctr"), "-a", s.daemon.Socket, "images"}, args...)
}

func (s *setup) pod() string { return filepath.Join(s.dir, string(s.compression)+".yaml") }

func (s *setup) store(name string) string { return filepath.Join(s.dir, "store", name) }

// embedded returns a command of runonce with a root of its own.
func (s *setup) embedded(args ...string) []string {
	return slices.Concat([]string{s.runonce, "images"}, args, []string{"--root", s.store("root"), "--state", s.store("state"), "--quiet"})
}

// floors are what no tool can do faster that writes the bytes to the disk, or that decompresses them.
func (s *setup) floors() []tool {
	return []tool{
		{name: "dd", command: []string{"dd", "if=" + filepath.Join(s.dir, raw), "of=" + s.store("copy"), "bs=1M", "conv=fsync"}, floor: true},
		{name: decompressors[s.compression] + " -d", command: []string{decompressors[s.compression], "-d", "-k", "-f", s.compressed(), "-o", "/dev/null"}, floor: true},
	}
}

// importJob is without unpacking but for podman, which cannot do without. runonce unpacks an image
// when a pod needs it first.
func (s *setup) importJob() job {
	tools := append(s.floors(),
		tool{name: reference, command: s.ctr("import", "--no-unpack", s.archive()), clean: s.ctr("rm", "--sync", ref)},
		tool{name: "runonce", command: s.embedded("import", s.archive())},
		tool{name: "skopeo", command: []string{"skopeo", "--insecure-policy", "copy", "oci-archive:" + s.archive(), "dir:" + s.store("skopeo")}},
	)
	if s.podman != "" {
		tools = append(tools, tool{name: "podman", command: s.inPodman("load", "-i", s.archive())})
	}
	return job{"import", tools}
}

func (s *setup) pullJob() job {
	tools := append(s.floors(),
		tool{name: reference, command: s.ctr("pull", "--plain-http", s.image()), clean: s.ctr("rm", "--sync", s.image())},
		tool{name: "runonce", command: s.embedded("pull", s.pod())},
		tool{name: "skopeo", command: []string{"skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", "docker://" + s.image(), "dir:" + s.store("skopeo")}},
	)
	if s.podman != "" {
		tools = append(tools, tool{name: "podman", command: s.inPodman("pull", "--tls-verify=false", s.image())})
	}
	if s.nerdctl != "" {
		nerdctl := []string{s.nerdctl, "--address", s.daemon.Socket, "--namespace", "nerdctl", "--data-root", filepath.Join(s.dir, "nerdctl"), "--insecure-registry"}
		tools = append(tools, tool{
			name: "nerdctl", command: slices.Concat(nerdctl, []string{"pull", "--quiet", s.image()}), clean: slices.Concat(nerdctl, []string{"rmi", s.image()}),
		})
	}
	return job{"pull", tools}
}

func (s *setup) inPodman(args ...string) []string {
	return append([]string{s.podman, "--root", s.store("podman"), "--runroot", s.store("run")}, args...)
}
