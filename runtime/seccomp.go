package runtime

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/runtime/podstate"
	"github.com/runonce/runonce/runtime/spec"
)

// readSeccomp reads a profile below dir.
func readSeccomp(dir, name string) (*specs.LinuxSeccomp, error) {
	path := filepath.Join(dir, filepath.Join("/", name))
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &spec.ConfigError{Why: podstate.ReasonCreateError, Err: fmt.Errorf("reading seccomp profile: %w", err)}
	}
	parsed := &specs.LinuxSeccomp{}
	if err := json.Unmarshal(data, parsed); err != nil {
		return nil, &spec.ConfigError{Why: podstate.ReasonCreateError, Err: fmt.Errorf("decoding seccomp profile %s: %w", path, err)}
	}
	return parsed, nil
}
