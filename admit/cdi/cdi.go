// Package cdi counts the devices that a machine's specifications of the Container Device
// Interface offer (https://github.com/cncf-tags/container-device-interface, SPEC.md).
package cdi

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Size is the largest specification that is read, in bytes.
const Size = 4 << 20

// dirs hold specifications; a device in a later one takes the place of an earlier one.
var dirs = [...]string{"etc/cdi", "run/cdi"}

// spec is the part of a specification that says which devices there are.
type spec struct {
	Kind    string `json:"kind"` // for example nvidia.com/gpu
	Devices []struct {
		Name           string `json:"name"`
		ContainerEdits struct {
			DeviceNodes []struct {
				Path string `json:"path"`
			} `json:"deviceNodes"`
		} `json:"containerEdits"`
	} `json:"devices"`
}

// Devices returns how many devices of each kind the machine whose root is fsys has. One
// that goes by several names counts once, and the name for all of them not at all.
func Devices(fsys fs.FS) (map[string]int64, error) {
	kinds := map[string]map[string]string{} // device nodes by kind and name
	for _, dir := range dirs {
		entries, err := fs.ReadDir(fsys, dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("counting devices: %w", err)
		}
		for _, e := range entries {
			switch path.Ext(e.Name()) {
			case ".json", ".yaml", ".yml":
			default:
				continue
			}
			if err := read(fsys, path.Join(dir, e.Name()), kinds); err != nil {
				return nil, fmt.Errorf("counting devices: /%s: %w", path.Join(dir, e.Name()), err)
			}
		}
	}
	counts := map[string]int64{}
	for kind, devices := range kinds {
		distinct := map[string]bool{}
		for _, nodes := range devices {
			distinct[nodes] = true
		}
		counts[kind] = int64(len(distinct))
	}
	return counts, nil
}

// read adds the devices of one specification.
func read(fsys fs.FS, name string, kinds map[string]map[string]string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, Size+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if len(data) > Size {
		return fmt.Errorf("larger than %d bytes", Size)
	}
	var s spec
	if err := yaml.Unmarshal(data, &s); err != nil {
		return err
	}
	if faults := validation.IsQualifiedName(s.Kind); len(faults) > 0 || !strings.Contains(s.Kind, "/") {
		return fmt.Errorf("kind %q: must be VENDOR/CLASS", s.Kind)
	}
	if kinds[s.Kind] == nil {
		kinds[s.Kind] = map[string]string{}
	}
	for _, d := range s.Devices {
		if d.Name == "all" {
			continue
		}
		nodes := make([]string, 0, len(d.ContainerEdits.DeviceNodes))
		for _, n := range d.ContainerEdits.DeviceNodes {
			nodes = append(nodes, n.Path)
		}
		slices.Sort(nodes)
		key := strings.Join(nodes, "\n")
		if key == "" {
			key = "name " + d.Name // known by nothing but its name
		}
		kinds[s.Kind][d.Name] = key
	}
	return nil
}
