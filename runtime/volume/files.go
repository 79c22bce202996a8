package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/ocispec"
)

// defaultFileMode is the mode of files whose volume sets none.
const defaultFileMode = int32(0o644)

// errUnsupportedSource is the error of a source that only a cluster has, or that is not known.
var errUnsupportedSource = failure.FailedMountf("unsupported source of a projected volume")

// files makes a volume of files: configMap, secret, downwardAPI or projected. All but
// configMap are kept in memory, so that no secret is written to a disk.
func (m *Manager) files(ctx context.Context, pod *v1.Pod, v *v1.Volume) error {
	files, err := m.payload(ctx, pod, &v.VolumeSource)
	if err != nil {
		return err
	}
	dir := m.path(pod, v)
	if err := makeDir(dir, volumeMode); err != nil {
		return err
	}
	if v.ConfigMap == nil {
		if err := m.mountOnce(dir, filesystem{kind: "tmpfs"}); err != nil {
			return err
		}
	}
	if err := writePayload(dir, files); err != nil {
		return err
	}
	if err := makeNestedMountpoints(dir, pod, v.Name); err != nil {
		return err
	}
	return setVolumeOwnership(pod, dir, true, false)
}

// Refresh writes the files of the pod's volumes again that have changed since: of ConfigMaps and
// Secrets, the pod's metadata, and tokens. A volume that was not made yet is left alone.
func (m *Manager) Refresh(ctx context.Context, pod *v1.Pod) error {
	if err := checkUID(pod); err != nil {
		return err
	}
	var errs []error
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil {
			if err := m.refresh(ctx, pod, v); err != nil {
				errs = append(errs, fmt.Errorf("volume %q: %w", v.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) refresh(ctx context.Context, pod *v1.Pod, v *v1.Volume) error {
	dir := m.path(pod, v)
	if _, err := os.Lstat(filepath.Join(dir, dataDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	files, err := m.payload(ctx, pod, &v.VolumeSource)
	if err != nil {
		return err
	}
	err = replacePayload(dir, files, func(fresh string) error { return setVolumeOwnership(pod, fresh, true, false) })
	if err != nil {
		return err
	}
	return makeNestedMountpoints(dir, pod, v.Name)
}

// payload returns the files of the volume.
func (m *Manager) payload(ctx context.Context, pod *v1.Pod, s *v1.VolumeSource) (payload, error) {
	switch {
	case s.ConfigMap != nil:
		return m.configMap(pod, s.ConfigMap, attributes{s.ConfigMap.DefaultMode, s.ConfigMap.DefaultUser})
	case s.Secret != nil:
		return m.secret(pod, s.Secret, attributes{s.Secret.DefaultMode, s.Secret.DefaultUser})
	case s.DownwardAPI != nil:
		return m.downwardAPI(pod, s.DownwardAPI.Items, attributes{s.DownwardAPI.DefaultMode, s.DownwardAPI.DefaultUser})
	}
	return m.projected(ctx, pod, s.Projected)
}

// projected merges its sources; of equal paths the last one counts.
func (m *Manager) projected(ctx context.Context, pod *v1.Pod, p *v1.ProjectedVolumeSource) (payload, error) {
	all := payload{}
	defaults := attributes{p.DefaultMode, p.DefaultUser}
	for _, s := range p.Sources {
		var files payload
		var err error
		switch {
		case s.ConfigMap != nil:
			files, err = m.configMap(pod, &v1.ConfigMapVolumeSource{
				LocalObjectReference: s.ConfigMap.LocalObjectReference, Items: s.ConfigMap.Items, Optional: s.ConfigMap.Optional,
			}, defaults)
		case s.Secret != nil:
			files, err = m.secret(pod, &v1.SecretVolumeSource{
				SecretName: s.Secret.Name, Items: s.Secret.Items, Optional: s.Secret.Optional,
			}, defaults)
		case s.DownwardAPI != nil:
			files, err = m.downwardAPI(pod, s.DownwardAPI.Items, defaults)
		case s.ServiceAccountToken != nil:
			files, err = m.serviceAccountToken(ctx, pod, s.ServiceAccountToken, defaults)
		default:
			err = errUnsupportedSource
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

func (m *Manager) configMap(pod *v1.Pod, s *v1.ConfigMapVolumeSource, defaults attributes) (payload, error) {
	data := map[string][]byte{}
	if found, ok := podspec.ObjectsOf(pod, m.Objects).ConfigMap(pod.Namespace, s.Name); ok {
		for k, v := range found.Data {
			data[k] = []byte(v)
		}
		maps.Copy(data, found.BinaryData)
	} else if !isTrue(s.Optional) {
		return nil, failure.FailedMountf("configmap %q not found", s.Name)
	}
	files, missing := project(data, s.Items, defaults)
	if missing != "" && !isTrue(s.Optional) {
		return nil, failure.FailedMountf("configmap references non-existent config key: %s", missing)
	}
	return files, nil
}

func (m *Manager) secret(pod *v1.Pod, s *v1.SecretVolumeSource, defaults attributes) (payload, error) {
	var data map[string][]byte
	if found, ok := podspec.ObjectsOf(pod, m.Objects).Secret(pod.Namespace, s.SecretName); ok {
		data = found.Data
	} else if !isTrue(s.Optional) {
		return nil, failure.FailedMountf("secret %q not found", s.SecretName)
	}
	files, missing := project(data, s.Items, defaults)
	if missing != "" && !isTrue(s.Optional) {
		return nil, failure.FailedMountf("references non-existent secret key: %s", missing)
	}
	return files, nil
}

// project returns the files for the items, or for all keys without items, and the first
// key that does not exist (configmap.MakePayload).
func project(data map[string][]byte, items []v1.KeyToPath, defaults attributes) (files payload, missing string) {
	files = payload{}
	if len(items) == 0 {
		for k, v := range data {
			files[k] = defaults.file(v, nil, nil)
		}
	}
	for _, item := range items {
		if content, ok := data[item.Key]; ok {
			files[item.Path] = defaults.file(content, item.Mode, item.User)
		} else {
			missing = cmp.Or(missing, item.Key)
		}
	}
	return files, missing
}

func (m *Manager) downwardAPI(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, defaults attributes) (payload, error) {
	c := ocispec.Context{Pod: pod, Node: ocispec.Node{Allocatable: m.Allocatable}}
	files := payload{}
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = ocispec.MetadataField(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = c.ResourceField(item.ResourceFieldRef, nil)
		default:
			err = errors.New("neither fieldRef nor resourceFieldRef is set")
		}
		if err != nil {
			return nil, failure.FailedMountf("file %q: %w", item.Path, err)
		}
		files[item.Path] = defaults.file([]byte(text), item.Mode, item.User)
	}
	return files, nil
}

// attributes are a volume's defaults for its files.
type attributes struct {
	mode *int32
	user *int64
}

// file returns a file with its own mode and user, if it has them.
func (a attributes) file(data []byte, mode *int32, user *int64) file {
	bits := cmp.Or(mode, a.mode, new(defaultFileMode))
	return file{data: data, mode: fs.FileMode(*bits) & fs.ModePerm, user: cmp.Or(user, a.user)}
}

func isTrue(b *bool) bool { return b != nil && *b }
