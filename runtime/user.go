package runtime

import (
	"encoding/json"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
)

// userLabel is what statusUser reads: who the container's first process is.
func userLabel(oci *specs.Spec) (string, error) {
	own := v1.LinuxContainerUser{UID: int64(oci.Process.User.UID), GID: int64(oci.Process.User.GID)}
	for _, gid := range oci.Process.User.AdditionalGids {
		own.SupplementalGroups = append(own.SupplementalGroups, int64(gid))
	}
	text, err := json.Marshal(own)
	if err != nil {
		return "", fmt.Errorf("noting the user of the container: %w", err)
	}
	return string(text), nil
}
