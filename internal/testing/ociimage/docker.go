package ociimage

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
)

// dockerManifest is an entry of manifest.json in an archive of docker save.
type dockerManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// BuildDocker writes the image as docker save does. Layers are not compressed.
func BuildDocker(w io.Writer, img Image) error {
	img.Compression = None
	config, layers, err := img.pack()
	if err != nil {
		return fmt.Errorf("building image %q: %w", img.Ref, err)
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("building image %q: %w", img.Ref, err)
	}
	m := dockerManifest{Config: sum(raw).Encoded() + ".json", RepoTags: []string{img.Ref}}
	files := []File{{Path: m.Config, Body: raw}}
	for _, l := range layers {
		name := l.diffID.Encoded() + "/layer.tar"
		m.Layers = append(m.Layers, name)
		files = append(files, File{Path: name, Body: l.body})
	}
	manifest, err := json.Marshal([]dockerManifest{m})
	if err != nil {
		return fmt.Errorf("building image %q: %w", img.Ref, err)
	}
	t := tar.NewWriter(w)
	for _, f := range append(files, File{Path: "manifest.json", Body: manifest}) {
		if err := writeEntry(t, f); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("ending the archive: %w", err)
	}
	return nil
}
