package volume

import (
	"fmt"
	"io/fs"
	"maps"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/ocispec/downward"
	"github.com/runonce/runonce/runtime/volume/emptydir"
	"github.com/runonce/runonce/runtime/volume/fsgroup"
	"github.com/runonce/runonce/runtime/volume/nested"
	"github.com/runonce/runonce/runtime/volume/payload"
)

// defaultMode is that of files whose volume names none.
const defaultMode = 0o644

// files makes a volume of files: configMap, secret, downwardAPI or projected. All but
// configMap are kept in memory, so that no secret touches a disk.
func (m *Manager) files(pod *v1.Pod, v *v1.Volume) error {
	files, err := m.payload(pod, &v.VolumeSource)
	if err != nil {
		return err
	}
	if err := payload.Check(files); err != nil {
		return failure.FailedMountf("%w", err)
	}
	if fsgroup.Wanted(pod) {
		for name, f := range files {
			f.Mode |= fsgroup.ReadOnly
			files[name] = f
		}
	}
	dir := m.path(pod, v)
	if err := makeDir(dir, emptydir.DefaultMode); err != nil {
		return err
	}
	if v.ConfigMap == nil {
		if err := m.mountOnce(dir, filesystem{kind: "tmpfs"}); err != nil {
			return err
		}
		if err := os.Chmod(dir, emptydir.DefaultMode); err != nil {
			return err
		}
	}
	if err := payload.Write(dir, files); err != nil {
		return fmt.Errorf("writing files: %w", err)
	}
	if err := nested.Make(dir, pod, v.Name); err != nil {
		return err
	}
	return fsgroup.Own(pod, dir, true, false)
}

// payload works out the files of the volume.
func (m *Manager) payload(pod *v1.Pod, s *v1.VolumeSource) (payload.Files, error) {
	switch {
	case s.ConfigMap != nil:
		return m.configMap(pod.Namespace, s.ConfigMap, fallbackOf(s.ConfigMap.DefaultMode, s.ConfigMap.DefaultUser))
	case s.Secret != nil:
		return m.secret(pod.Namespace, s.Secret, fallbackOf(s.Secret.DefaultMode, s.Secret.DefaultUser))
	case s.DownwardAPI != nil:
		return m.downward(pod, s.DownwardAPI.Items, fallbackOf(s.DownwardAPI.DefaultMode, s.DownwardAPI.DefaultUser))
	}
	return m.projected(pod, s.Projected)
}

// projected merges its sources; of equal paths the later counts.
func (m *Manager) projected(pod *v1.Pod, p *v1.ProjectedVolumeSource) (payload.Files, error) {
	all := payload.Files{}
	fallback := fallbackOf(p.DefaultMode, p.DefaultUser)
	for _, s := range p.Sources {
		var files payload.Files
		var err error
		switch {
		case s.ConfigMap != nil:
			files, err = m.configMap(pod.Namespace, &v1.ConfigMapVolumeSource{
				LocalObjectReference: s.ConfigMap.LocalObjectReference, Items: s.ConfigMap.Items, Optional: s.ConfigMap.Optional,
			}, fallback)
		case s.Secret != nil:
			files, err = m.secret(pod.Namespace, &v1.SecretVolumeSource{
				SecretName: s.Secret.Name, Items: s.Secret.Items, Optional: s.Secret.Optional,
			}, fallback)
		case s.DownwardAPI != nil:
			files, err = m.downward(pod, s.DownwardAPI.Items, fallback)
		default:
			err = failure.FailedMountf("unsupported source of a projected volume")
		}
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

func (m *Manager) configMap(namespace string, s *v1.ConfigMapVolumeSource, fallback attributes) (payload.Files, error) {
	data := map[string][]byte{}
	var found *v1.ConfigMap
	ok := false
	if m.Objects != nil {
		found, ok = m.Objects.ConfigMap(namespace, s.Name)
	}
	if !ok && !isTrue(s.Optional) {
		return nil, failure.FailedMountf("configmap %q not found", s.Name)
	}
	if ok {
		for k, v := range found.Data {
			data[k] = []byte(v)
		}
		maps.Copy(data, found.BinaryData)
	}
	return project(projection{"configmap references non-existent config key", data, s.Items, isTrue(s.Optional), fallback})
}

func (m *Manager) secret(namespace string, s *v1.SecretVolumeSource, fallback attributes) (payload.Files, error) {
	var data map[string][]byte
	var found *v1.Secret
	ok := false
	if m.Objects != nil {
		found, ok = m.Objects.Secret(namespace, s.SecretName)
	}
	if !ok && !isTrue(s.Optional) {
		return nil, failure.FailedMountf("secret %q not found", s.SecretName)
	}
	if ok {
		data = found.Data
	}
	return project(projection{"references non-existent secret key", data, s.Items, isTrue(s.Optional), fallback})
}

// projection is a choice of the keys of an object.
type projection struct {
	complaint string // about a key that is not there
	data      map[string][]byte
	items     []v1.KeyToPath
	optional  bool
	fallback  attributes
}

// project returns the files: all keys, or the items (configmap.MakePayload).
func project(p projection) (payload.Files, error) {
	files := payload.Files{}
	if len(p.items) == 0 {
		for k, v := range p.data {
			files[k] = p.fallback.file(v, nil, nil)
		}
		return files, nil
	}
	for _, item := range p.items {
		data, ok := p.data[item.Key]
		if !ok {
			if p.optional {
				continue
			}
			return nil, failure.FailedMountf("%s: %s", p.complaint, item.Key)
		}
		files[item.Path] = p.fallback.file(data, item.Mode, item.User)
	}
	return files, nil
}

// downward returns the files of the downward API.
func (m *Manager) downward(pod *v1.Pod, items []v1.DownwardAPIVolumeFile, fallback attributes) (payload.Files, error) {
	source := downward.Source{Pod: pod, Allocatable: m.Allocatable}
	files := payload.Files{}
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = source.Metadata(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = source.Resource(item.ResourceFieldRef, nil)
		default:
			err = fmt.Errorf("neither fieldRef nor resourceFieldRef is set")
		}
		if err != nil {
			return nil, failure.FailedMountf("file %q: %w", item.Path, err)
		}
		files[item.Path] = fallback.file([]byte(text), item.Mode, item.User)
	}
	return files, nil
}

// attributes are those of files whose item names none.
type attributes struct {
	mode fs.FileMode
	user *int64
}

func fallbackOf(mode *int32, user *int64) attributes {
	a := attributes{mode: defaultMode, user: user}
	if mode != nil {
		a.mode = fs.FileMode(*mode) & fs.ModePerm
	}
	return a
}

// file returns a file with its own mode and user, where it has them.
func (a attributes) file(data []byte, mode *int32, user *int64) payload.File {
	f := payload.File{Data: data, Mode: a.mode, Owner: a.user}
	if mode != nil {
		f.Mode = fs.FileMode(*mode) & fs.ModePerm
	}
	if user != nil {
		f.Owner = user
	}
	return f
}

func isTrue(b *bool) bool { return b != nil && *b }
