package compose

import (
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
	v1 "k8s.io/api/core/v1"
)

func sameSource(a, b v1.VolumeSource) bool { return reflect.DeepEqual(a, b) }

// mounts gives a container its volumes.
func (p *pod) mounts(at place, s *types.ContainerSpec, container *v1.Container) {
	for _, v := range p.allVolumes(at, s) {
		if m, ok := p.mount(at.at("volumes", item(v.Target)), s, v); ok {
			m.MountPath = v.Target
			m.ReadOnly = m.ReadOnly || v.ReadOnly
			container.VolumeMounts = append(container.VolumeMounts, m)
		}
	}
	for _, text := range s.Tmpfs {
		target, options, _ := strings.Cut(text, ":")
		source := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
		m := v1.VolumeMount{MountPath: target}
		p.tmpfsOptions(at.at("tmpfs", item(target)), options, source, &m)
		m.Name = p.volume("tmpfs-"+path.Base(target), v1.VolumeSource{EmptyDir: source})
		container.VolumeMounts = append(container.VolumeMounts, m)
	}
	if s.ShmSize > 0 {
		source := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: memory(s.ShmSize)}
		container.VolumeMounts = append(container.VolumeMounts, v1.VolumeMount{Name: p.volume("shm", v1.VolumeSource{EmptyDir: source}), MountPath: "/dev/shm"})
	}
	p.fileMounts(at, s, container)
}

// allVolumes returns the volumes of a container, with those that it has from other services.
func (p *pod) allVolumes(at place, s *types.ContainerSpec) []types.ServiceVolumeConfig {
	all := slices.Clone(s.Volumes)
	for _, from := range s.VolumesFrom {
		name, mode, _ := strings.Cut(from, ":")
		other, ok := p.Services[name]
		if !ok {
			p.fail(at.at("volumes_from", item(name)), "%s: only volumes of services of these files can be shared", from)
			continue
		}
		for _, v := range other.Volumes {
			if v.Type == types.VolumeTypeVolume && v.Source == "" || v.Type == types.VolumeTypeTmpfs {
				p.warn(at.at("volumes_from", item(name)), "%s of %s has no name, so it is not shared: make it a named volume", v.Target, name)
				continue
			}
			if slices.ContainsFunc(all, func(own types.ServiceVolumeConfig) bool { return own.Target == v.Target }) {
				continue
			}
			v.ReadOnly = v.ReadOnly || mode == "ro"
			all = append(all, v)
		}
	}
	return all
}

// mount adds the volume to the pod, if it is one that a pod can have.
func (p *pod) mount(at place, s *types.ContainerSpec, v types.ServiceVolumeConfig) (m v1.VolumeMount, ok bool) {
	switch v.Type {
	case types.VolumeTypeBind:
		p.bind(at, v, &m)
	case types.VolumeTypeTmpfs:
		source := &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
		if t := v.Tmpfs; t != nil {
			if t.Size > 0 {
				source.SizeLimit = memory(t.Size)
			}
			if t.Mode != 0 {
				mode := int32(t.Mode)
				source.Mode = &mode
			}
		}
		m.Name = p.volume("tmpfs-"+path.Base(v.Target), v1.VolumeSource{EmptyDir: source})
	case types.VolumeTypeImage:
		m.Name = p.volume("image-"+path.Base(v.Source), v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: v.Source, PullPolicy: p.pullPolicy(at, s)}})
		m.ReadOnly = true
		if v.Image != nil {
			m.SubPath = v.Image.SubPath
		}
	case types.VolumeTypeVolume:
		if v.Volume != nil {
			m.SubPath = v.Volume.Subpath
		}
		return m, p.named(at, s, v, &m)
	default:
		p.fail(at, "a volume of type %s cannot be mounted", v.Type)
		return m, false
	}
	return m, true
}

// bind mounts something of the machine.
func (p *pod) bind(at place, v types.ServiceVolumeConfig, m *v1.VolumeMount) {
	source := &v1.HostPathVolumeSource{Path: path.Clean(v.Source)}
	if kind := p.pathType(v); kind != v1.HostPathUnset {
		source.Type = &kind
	}
	m.Name = p.volume("bind-"+path.Base(source.Path), v1.VolumeSource{HostPath: source})
	if path.Base(v.Source) == "docker.sock" {
		p.warn(at, "docker, if it runs here, knows nothing of pods")
	}
	if v.Bind == nil {
		return
	}
	var propagation v1.MountPropagationMode
	switch v.Bind.Propagation {
	case types.PropagationRShared, types.PropagationShared:
		propagation = v1.MountPropagationBidirectional
	case types.PropagationRSlave, types.PropagationSlave:
		propagation = v1.MountPropagationHostToContainer
	}
	if propagation != "" {
		m.MountPropagation = &propagation
	}
	if v.Bind.SELinux != "" {
		p.warn(at, "the files keep their SELinux labels")
	}
	switch v.Bind.Recursive {
	case "disabled", "writable":
		p.warn(at, "what is mounted below is mounted as well")
	case "readonly":
		enabled := v1.RecursiveReadOnlyEnabled
		m.RecursiveReadOnly = &enabled
	}
}

// pathType says what a path of the machine has to be: what it is now, or a directory, which is created unless the file says no.
func (p *pod) pathType(v types.ServiceVolumeConfig) v1.HostPathType {
	if p.options.Machine != nil {
		if info, err := fs.Stat(p.options.Machine, strings.TrimPrefix(path.Clean(v.Source), "/")); err == nil {
			switch mode := info.Mode(); {
			case mode.IsRegular():
				return v1.HostPathFile
			case mode&fs.ModeSocket != 0:
				return v1.HostPathSocket
			case mode&fs.ModeCharDevice != 0:
				return v1.HostPathCharDev
			case mode&fs.ModeDevice != 0:
				return v1.HostPathBlockDev
			}
		}
	}
	if v.Bind != nil && !bool(v.Bind.CreateHostPath) {
		return v1.HostPathUnset
	}
	return v1.HostPathDirectoryOrCreate
}

// named mounts a volume of the project, or one without a name, which is new for each container.
func (p *pod) named(at place, s *types.ContainerSpec, v types.ServiceVolumeConfig, m *v1.VolumeMount) bool {
	if v.Source == "" {
		p.warn(at, "is empty at first, without the files that the image has there, and lasts as long as the pod")
		m.Name = p.volume("volume-"+path.Base(v.Target), v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
		return true
	}
	for _, other := range s.Volumes {
		if other.Type == types.VolumeTypeBind && strings.HasPrefix(v.Target, strings.TrimSuffix(other.Target, "/")+"/") {
			p.warn(at, "is empty at first, without the files that the image has there")
		}
	}
	source, ok := p.volumeSource(v.Source)
	if ok {
		m.Name = p.volume("volume-"+p.claimNames[v.Source], source)
	}
	return ok
}

// volumeSource converts a volume of the project by its driver.
func (c *converter) volumeSource(key string) (source v1.VolumeSource, ok bool) {
	v, at := c.Volumes[key], place{"volumes", key}
	options := v.DriverOpts
	switch {
	case v.Driver != "" && v.Driver != "local":
		c.fail(at.at("driver"), "volumes of the driver %s cannot be mounted: mount it on the machine, and use its path", v.Driver)
		return source, false
	case options["type"] == "tmpfs":
		source.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}
		c.tmpfsOptions(at.at("driver_opts"), options["o"], source.EmptyDir, nil)
		return source, true
	case strings.HasPrefix(options["type"], "nfs"):
		return c.nfs(at.at("driver_opts"), options)
	case hasOption(options["o"], "bind"):
		source.HostPath = &v1.HostPathVolumeSource{Path: options["device"]}
		return source, true
	case len(options) > 0:
		c.fail(at.at("driver_opts"), "a file system of type %q cannot be mounted: mount it on the machine, and use its path", options["type"])
		return source, false
	}
	if bool(v.External) {
		c.warn(at, "a volume of docker is not used: the data have to be copied to the claim %s", c.claimNames[key])
	}
	c.claim(key)
	source.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: c.claimNames[key]}
	return source, true
}

// nfs mounts what the options of mount name.
func (c *converter) nfs(at place, options types.Options) (source v1.VolumeSource, ok bool) {
	nfs := &v1.NFSVolumeSource{Path: strings.TrimPrefix(options["device"], ":")}
	for option := range strings.SplitSeq(options["o"], ",") {
		switch name, value, _ := strings.Cut(option, "="); name {
		case "addr":
			nfs.Server = value
		case "ro":
			nfs.ReadOnly = true
		case "rw", "":
		default:
			c.warn(at.at("o"), "the option %s is left out", option)
		}
	}
	if server, dir, found := strings.Cut(nfs.Path, ":"); found {
		nfs.Path = dir
		if nfs.Server == "" {
			nfs.Server = server
		}
	}
	if nfs.Server == "" || !path.IsAbs(nfs.Path) {
		c.fail(at, "names no server (o: addr=HOST) or no directory (device: \":/DIR\") of NFS")
		return source, false
	}
	source.NFS = nfs
	return source, true
}

func hasOption(options, name string) bool {
	return slices.Contains(strings.Split(options, ","), name)
}

// tmpfsOptions sets what the options of a tmpfs say. Those of the mount are for one container.
func (c *converter) tmpfsOptions(at place, options string, source *v1.EmptyDirVolumeSource, m *v1.VolumeMount) {
	for option := range strings.SplitSeq(options, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "", "rw", "exec", "suid", "dev":
		case "size":
			var n types.UnitBytes
			if err := n.DecodeMapstructure(value); err != nil || n <= 0 {
				c.warn(at, "size=%s is no size: it is left out", value)
				continue
			}
			source.SizeLimit = memory(n)
		case "mode":
			n, err := strconv.ParseInt(value, 8, 32)
			if err != nil {
				c.warn(at, "mode=%s is no mode: it is left out", value)
				continue
			}
			mode := int32(n)
			source.Mode = &mode
		case "ro":
			if m != nil {
				m.ReadOnly = true
			}
		case "noexec", "nosuid", "nodev":
			if m != nil {
				m.BindMountOptions = append(m.BindMountOptions, name)
			}
		default:
			c.warn(at, "the option %s is left out", option)
		}
	}
}
