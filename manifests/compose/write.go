package compose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// header begins the files that this program writes, so that it knows them again.
const header = "# Converted from docker compose by runonce-compose.\n"

// Text returns the manifests as YAML.
func (f File) Text() ([]byte, error) {
	var b bytes.Buffer
	for i, o := range f.Objects {
		if i > 0 {
			b.WriteString("---\n")
		}
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		var tree map[string]any
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&tree); err != nil {
			return nil, err
		}
		delete(tree, "status")
		prune(tree)
		if text, err = yaml.Marshal(tree); err != nil {
			return nil, err
		}
		b.Write(text)
	}
	return b.Bytes(), nil
}

// prune removes what the API types write although it is empty.
func prune(node any) {
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			prune(value)
			if m, ok := value.(map[string]any); value == nil || ok && len(m) == 0 && slices.Contains([]string{"resources", "strategy", "metadata"}, key) {
				delete(n, key)
			}
		}
	case []any:
		for _, item := range n {
			prune(item)
		}
	}
}

// Print writes all manifests as one stream.
func Print(w io.Writer, files []File) error {
	for i, f := range files {
		text, err := f.Text()
		if err != nil {
			return err
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// WriteDir writes the files to a directory, which it makes. It replaces files of earlier conversions and no others, and returns
// the names of those of earlier conversions that are not among the files any more.
func WriteDir(dir string, files []File) (stale []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	stale, err = converted(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil && !slices.Contains(stale, f.Name) {
			return nil, fmt.Errorf("%s exists and is not from an earlier conversion: move it, or choose another directory", filepath.Join(dir, f.Name))
		}
	}
	for _, f := range files {
		text, err := f.Text()
		if err != nil {
			return nil, err
		}
		if err := replaceFile(filepath.Join(dir, f.Name), append([]byte(header), text...), f.Secret); err != nil {
			return nil, err
		}
		stale = slices.DeleteFunc(stale, func(name string) bool { return name == f.Name })
	}
	return stale, nil
}

// replaceFile replaces a file as a whole. Runonce does not read the unfinished one, whose name begins with a dot.
func replaceFile(name string, text []byte, secret bool) error {
	mode := os.FileMode(0o644)
	if secret {
		mode = 0o600
	}
	unfinished := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".new")
	if err := os.Remove(unfinished); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.WriteFile(unfinished, text, mode); err != nil {
		return err
	}
	return os.Rename(unfinished, name)
}

// converted returns the names of the files in a directory that are from a conversion.
func converted(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		begin := make([]byte, len(header))
		n, _ := io.ReadFull(f, begin)
		_ = f.Close()
		if string(begin[:n]) == header {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
