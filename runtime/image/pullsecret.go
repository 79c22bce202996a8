package image

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/engine"
)

// PodCredentials returns what OfSecrets returns for the pod's pull secrets that came with the pods; an
// absent one was warned about when the pod was read (getPullSecretsForPod of pkg/kubelet).
func PodCredentials(objects podspec.Objects, pod *v1.Pod, name string) ([]engine.Credential, error) {
	objects = podspec.ObjectsOf(pod, objects)
	var all []*v1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		if s, ok := objects.Secret(pod.Namespace, ref.Name); ok {
			all = append(all, s)
		}
	}
	return OfSecrets(all, name)
}

// OfSecrets returns those credentials of the pull secrets that match the image, in the order in
// which the kubelet tries them: the entries with the longest names first, and for one name in the
// order of the secrets (pkg/credentialprovider/keyring.go). Secrets of other types are ignored.
func OfSecrets(secrets []*v1.Secret, name string) ([]engine.Credential, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", name, err)
	}
	all := ring{}
	for _, s := range secrets {
		entries, err := entriesOf(s)
		if err != nil {
			return nil, fmt.Errorf("pull secret %q: %w", s.Namespace+"/"+s.Name, err)
		}
		for _, address := range slices.Sorted(maps.Keys(entries)) {
			c, err := entries[address].credential()
			if err != nil {
				return nil, fmt.Errorf("pull secret %q: auths[%q]: %w", s.Namespace+"/"+s.Name, address, err)
			}
			all.add(address, c)
		}
	}
	return all.lookup(named.Name()), nil
}

// entriesOf reads a secret of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg.
func entriesOf(s *v1.Secret) (map[string]auth, error) {
	var f file
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		if err := json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &f); err != nil {
			return nil, fmt.Errorf("%s: %w", v1.DockerConfigJsonKey, err)
		}
	case v1.SecretTypeDockercfg:
		if err := json.Unmarshal(s.Data[v1.DockerConfigKey], &f.Auths); err != nil {
			return nil, fmt.Errorf("%s: %w", v1.DockerConfigKey, err)
		}
	default:
	}
	return f.Auths, nil
}
