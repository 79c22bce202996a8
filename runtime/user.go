package runtime

import (
	"encoding/json"
	"fmt"

	"github.com/runonce/runonce/runtime/engine"

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

// statusUser is the user that the container was started with, nil when it is not known.
func statusUser(c engine.Container) *v1.ContainerUser {
	user := &v1.ContainerUser{Linux: &v1.LinuxContainerUser{}}
	if json.Unmarshal([]byte(c.Labels[engine.LabelUser]), user.Linux) != nil {
		return nil
	}
	return user
}
