// Package testimages builds the images of the tests, the demo and the examples, as OCI archives, from the
// programs in testdata/images and from Debian's packages. Nothing is downloaded.
package testimages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"sigs.k8s.io/yaml"

	"github.com/runonce/runonce/internal/testing/ociimage"
)

// Image is one entry of testdata/images/images.yaml.
type Image struct {
	// Name is the archive's file name without .tar.
	Name string `json:"name"`
	// Ref is the image reference used in manifests.
	Ref string `json:"ref"`
	// Program is the name of one of the installed programs, or else the directory in testdata/images with the main
	// package.
	Program string `json:"program"`
	// Installed are patterns of files from Debian's packages (see Packages.Files), to which the libraries that they
	// need are added. Those in a directory called bin have links in /bin.
	Installed []string `json:"installed"`
	// Links are additional names of the program in /bin.
	Links []string `json:"links"`
	// Files maps the paths of additional files to their content. Those in a directory called bin are executable.
	Files map[string]string `json:"files"`
	// Config is the image's configuration.
	Config v1.ImageConfig `json:"config"`
	// Healthcheck is the one that Docker's format adds to it.
	Healthcheck json.RawMessage `json:"healthcheck"`
}

// Write compiles the programs and writes the archives of the named images into dir as NAME.tar. The default
// is all but those of Debian's packages. It returns the images it has written.
func Write(ctx context.Context, dir string, names ...string) ([]Image, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	all, err := List(root)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if !slices.ContainsFunc(all, func(i Image) bool { return i.Name == n }) {
			return nil, fmt.Errorf("writing test images: unknown image %q", n)
		}
	}
	var chosen []Image
	for _, img := range all {
		if len(names) == 0 && img.Installed == nil || slices.Contains(names, img.Name) {
			chosen = append(chosen, img)
		}
	}
	return chosen, WriteAll(ctx, dir, chosen)
}

// WriteAll compiles the programs of the images and writes their archives into dir as NAME.tar.
func WriteAll(ctx context.Context, dir string, images []Image) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of the images: %w", err)
	}
	programs := map[string][]byte{}
	for _, img := range images {
		contents, err := img.build(ctx, root, programs)
		if err == nil {
			err = writeArchive(dir, img.Name, contents)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// List reads testdata/images/images.yaml. root is the project's directory.
func List(root string) ([]Image, error) {
	b, err := os.ReadFile(filepath.Join(root, "testdata", "images", "images.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the list of test images: %w", err)
	}
	return Parse(b)
}

// Parse reads a list of images, as there is one in testdata/images/images.yaml.
func Parse(text []byte) ([]Image, error) {
	var list struct {
		Images []Image `json:"images"`
	}
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("reading the list of test images: %w", err)
	}
	return list.Images, nil
}

// Root returns the project's directory: the nearest parent directory with testdata/images, since modules
// below it have a go.mod, too.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the project's directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "testdata", "images")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the project's directory: no testdata/images in any parent directory")
		}
		dir = parent
	}
}

// Compiled is the environment variable for a directory of compiled programs, for machines
// without Go.
const Compiled = "RUNONCE_TEST_PROGRAMS"

// Main is the name of runonce in that directory.
const Main = "runonce"

// Program compiles a program of testdata/images, statically linked and without debug
// information, and returns the executable.
func Program(ctx context.Context, root, name string) ([]byte, error) {
	if dir := os.Getenv(Compiled); dir != "" {
		return os.ReadFile(filepath.Join(dir, name))
	}
	tmp, err := os.MkdirTemp("", "runonce-image-")
	if err != nil {
		return nil, fmt.Errorf("compiling %q: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	out := filepath.Join(tmp, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=",
		"-o", out, "./testdata/images/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling %q: %w: %s", name, err, bytes.TrimSpace(msg))
	}
	return os.ReadFile(out)
}

// build returns the contents of an image, and adds the program that it compiles to those that are there.
func (i Image) build(ctx context.Context, root string, programs map[string][]byte) (contents ociimage.Image, err error) {
	if !slices.ContainsFunc(i.Installed, func(pattern string) bool { return path.Base(pattern) == i.Program }) {
		if programs[i.Program] == nil {
			if programs[i.Program], err = Program(ctx, root, i.Program); err != nil {
				return ociimage.Image{}, err
			}
		}
		contents = i.Contents(programs[i.Program])
	}
	if i.Installed == nil {
		return contents, nil
	}
	packaged, err := i.packaged(Debian(root))
	packaged.Layers = slices.Concat(contents.Layers, packaged.Layers)
	return packaged, err
}

// packaged returns the image of installed files.
func (i Image) packaged(packages Packages) (ociimage.Image, error) {
	files, err := packages.Files(i.Installed...)
	if err != nil {
		return ociimage.Image{}, fmt.Errorf("building image %q: %w", i.Name, err)
	}
	libraries, err := packages.Libraries(files)
	if err != nil {
		return ociimage.Image{}, fmt.Errorf("building image %q: %w", i.Name, err)
	}
	own := i.own()
	for _, f := range files {
		if dir, name := path.Split(f.Path); path.Base(dir) == "bin" && dir != "/bin/" {
			own = append(own, ociimage.File{Path: "/bin/" + name, Mode: fs.ModeSymlink | 0o777, Link: f.Path})
		}
	}
	own = append(own, ociimage.File{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777})
	return ociimage.Image{Ref: i.Ref, Layers: [][]ociimage.File{slices.Concat(libraries, files)}, Files: own, Config: i.Config, Healthcheck: i.Healthcheck}, nil
}

// Contents returns the image with the given executable: one layer that all images of the
// program share, and one for this image.
func (i Image) Contents(program []byte) ociimage.Image {
	base := []ociimage.File{
		{Path: "/bin/" + i.Program, Mode: 0o755, Body: program},
		{Path: "/etc/passwd", Body: []byte("root:x:0:0:root:/root:/bin/false\n" +
			"app:x:1000:1000:app:/home/app:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n")},
		{Path: "/etc/group", Body: []byte("root:x:0:\napp:x:1000:\nextra:x:2000:app\nnogroup:x:65534:\n")},
		{Path: "/home/app", Mode: fs.ModeDir | 0o755, UID: 1000, GID: 1000},
		{Path: "/root", Mode: fs.ModeDir | 0o700},
		{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	return ociimage.Image{Ref: i.Ref, Layers: [][]ociimage.File{base}, Files: i.own(), Config: i.Config, Healthcheck: i.Healthcheck}
}

// own returns the links and the additional files of the image.
func (i Image) own() []ociimage.File {
	own := make([]ociimage.File, 0, len(i.Links)+len(i.Files))
	for _, l := range i.Links {
		own = append(own, ociimage.File{Path: "/bin/" + l, Mode: fs.ModeSymlink | 0o777, Link: i.Program})
	}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		f := ociimage.File{Path: name, Body: []byte(i.Files[name])}
		if path.Base(path.Dir(name)) == "bin" {
			f.Mode = 0o755
		}
		own = append(own, f)
	}
	return own
}

// writeArchive replaces the archive atomically.
func writeArchive(dir, name string, img ociimage.Image) error {
	tmp, err := os.CreateTemp(dir, "."+name+"-")
	if err != nil {
		return fmt.Errorf("writing image %q: %w", name, err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err := errors.Join(ociimage.Build(tmp, img), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return fmt.Errorf("writing image %q: %w", name, err)
	}
	if err := os.Rename(tmp.Name(), filepath.Join(dir, name+".tar")); err != nil {
		return fmt.Errorf("writing image %q: %w", name, err)
	}
	return nil
}
