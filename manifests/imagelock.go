package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	name "github.com/distribution/reference"
	"github.com/opencontainers/go-digest"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/manifests/decode"
)

const (
	lockVersion = "runonce/v1"
	lockKind    = "ImageLock"
)

// ImageLock has the digests of images by their normalised references.
type ImageLock struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Images     map[string]string `json:"images"`
}

// ReadImageLock reads a lock. That of a file that does not exist is empty. An error about its
// content is of type Diagnostics.
func ReadImageLock(path string) (ImageLock, error) {
	l := ImageLock{APIVersion: lockVersion, Kind: lockKind, Images: map[string]string{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("reading the lock of images: %w", err)
	}
	docs, problems := decode.Split(path, data)
	switch {
	case len(problems.Of(SeverityError)) > 0:
		return l, problems.Err()
	case len(docs) != 1:
		return l, Diagnostics{{
			File: path, Line: 1, Severity: SeverityError,
			Message: fmt.Sprintf("has %d documents, want one of kind %s", len(docs), lockKind),
		}}
	}
	if problems = decode.Into(docs[0], &l); len(problems) == 0 {
		problems = l.check(docs[0])
	}
	if l.Images == nil {
		l.Images = map[string]string{}
	}
	return l, problems.Of(SeverityError).Err()
}

// check returns what is wrong with a lock.
func (l ImageLock) check(doc decode.Document) Diagnostics {
	var problems Diagnostics
	if l.APIVersion != lockVersion || l.Kind != lockKind {
		problems = append(problems, doc.Error("kind", fmt.Sprintf("is %q of %q, want %q of %q", l.Kind, l.APIVersion, lockKind, lockVersion), ""))
	}
	for _, ref := range slices.Sorted(maps.Keys(l.Images)) {
		field := "images[" + ref + "]"
		named, err := name.ParseDockerRef(ref)
		switch {
		case err != nil:
			problems = append(problems, doc.Error(field, fmt.Sprintf("%q is not an image reference: %v", ref, err), ""))
		case named.String() != ref || strings.Contains(ref, "@"):
			problems = append(problems, doc.Error(field, fmt.Sprintf("%q is not a full reference with a tag", ref), "write "+name.TagNameOnly(name.TrimNamed(named)).String()))
		}
		if err := digest.Digest(l.Images[ref]).Validate(); err != nil {
			problems = append(problems, doc.Error(field, fmt.Sprintf("%q is not a digest: %v", l.Images[ref], err), ""))
		}
	}
	return problems
}

// Write writes the lock. Equal locks are equal files.
func (l ImageLock) Write(path string) (err error) {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nimages:\n", lockVersion, lockKind)
	for _, ref := range slices.Sorted(maps.Keys(l.Images)) {
		fmt.Fprintf(&b, "  %s: %s\n", ref, l.Images[ref])
	}
	f, err := atomicfile.Create(path, process.FileMode(0o644))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Abort()) }()
	if _, err := f.WriteString(b.String()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return f.Commit()
}
