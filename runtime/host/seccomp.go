package host

import (
	"encoding/json"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/failure"
)

// ReadSeccomp reads a seccomp profile of type Localhost below dir.
func ReadSeccomp(dir, name string) (*specs.LinuxSeccomp, error) {
	path := filepath.Join(dir, filepath.Join("/", name))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, failure.CreateErrorf("reading seccomp profile: %w", err)
	}
	parsed := &specs.LinuxSeccomp{}
	if err := json.Unmarshal(data, parsed); err != nil {
		return nil, failure.CreateErrorf("decoding seccomp profile %s: %w", path, err)
	}
	if parsed.DefaultAction == "" {
		return nil, failure.CreateErrorf("seccomp profile %s has no defaultAction", path)
	}
	return parsed, nil
}
