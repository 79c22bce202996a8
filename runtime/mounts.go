package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/atomicfile"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/ocispec"
	"github.com/runonce/runonce/runtime/volume"
)

// mounts makes the mounts of an instance of a container: the pod's volumes, those of its image, and our
// files, all as its users may use them.
func (p *Pods) mounts(ctx context.Context, attempt int, in ocispec.Input) ([]specs.Mount, error) {
	pod, c := in.Pod, in.Container
	mounts, err := p.o.Volumes.Mounts(pod, c, in.Env)
	if err != nil {
		return nil, err
	}
	own, err := p.ownMounts(pod, c, attempt)
	if err != nil {
		return nil, err
	}
	all, err := p.addDeclared(ctx, pod, c, in.Image, withDefaults(mounts, own))
	if err == nil && in.MountLabel != "" {
		err = p.relabel(pod.UID, in.MountLabel)
	}
	if err == nil && in.Sandbox.UserNS != "" {
		err = p.o.Volumes.MapUsers(pod, c.Name, in.Sandbox.UserNS, all)
	}
	return all, err
}

func bind(target, source, access string) specs.Mount {
	return specs.Mount{Destination: target, Source: source, Type: "bind", Options: []string{"rbind", "rprivate", access}}
}

// ownMounts returns the mounts of the files that the kubelet adds to each container.
func (p *Pods) ownMounts(pod *v1.Pod, c *v1.Container, attempt int) ([]specs.Mount, error) {
	dir := p.o.Records.Dir(pod.UID)
	mounts := append(make([]specs.Mount, 0, 4),
		bind("/etc/hostname", filepath.Join(dir, hostnameFile), rootAccess(c)),
		bind("/etc/hosts", filepath.Join(dir, HostsFile), "rw"),
		bind("/etc/resolv.conf", filepath.Join(dir, resolvFile), rootAccess(c)))
	if c.TerminationMessagePath == "" {
		return mounts, nil
	}
	// That of the instance before is read until this one runs; nobody reads older ones.
	_ = os.Remove(p.terminationLog(pod, c.Name, attempt-2))
	path := p.terminationLog(pod, c.Name, attempt)
	// With exactly this mode, whatever the umask is.
	err := os.WriteFile(path, nil, terminationLogMode)
	if err == nil {
		err = os.Chmod(path, terminationLogMode)
	}
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", path, err)
	}
	return append(mounts, bind(c.TerminationMessagePath, path, "rw")), nil
}

// rootAccess is "ro" for a container with a read-only root, and "rw" for others. The files that
// CRI runtimes add are mounted in the same way, while those that the kubelet adds, hosts and
// the termination log, are writable (internal/cri/server/container_create_linux.go,
// pkg/kubelet/kubelet_pods.go).
func rootAccess(c *v1.Container) string {
	if s := c.SecurityContext; s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem {
		return "ro"
	}
	return "rw"
}

// withDefaults adds to the pod's mounts those of ours with other targets. Ours come first: a
// volume on /etc hides them, as it does in the kubelet.
func withDefaults(mounts, own []specs.Mount) []specs.Mount {
	own = slices.DeleteFunc(own, func(o specs.Mount) bool {
		return slices.ContainsFunc(mounts, func(m specs.Mount) bool { return filepath.Clean(m.Destination) == o.Destination })
	})
	return append(own, mounts...)
}

// declaredDir is the directory, in the pod's, of the volumes that images declare.
const declaredDir = "image-volumes"

// addDeclared adds the mounts of the volumes that the image declares, and that the pod mounts nothing
// on. As under CRI runtimes, each instance of a container has new ones with the content of the image,
// which can be written to also if its root cannot (volumeMounts and WithVolumes of containerd's CRI
// plugin).
func (p *Pods) addDeclared(ctx context.Context, pod *v1.Pod, c *v1.Container, img engine.Image, all []specs.Mount) ([]specs.Mount, error) {
	if len(img.Volumes) == 0 {
		return all, nil
	}
	own := filepath.Join(p.o.Records.Dir(pod.UID), declaredDir, c.Name)
	if err := os.RemoveAll(own); err != nil { // of the instance before
		return nil, fmt.Errorf("removing old volumes of the image: %w", err)
	}
	dirs := map[string]string{}
	for i, target := range img.Volumes {
		if slices.ContainsFunc(all, func(m specs.Mount) bool { return filepath.Clean(m.Destination) == target }) {
			continue
		}
		dirs[target] = filepath.Join(own, strconv.Itoa(i))
		if err := os.MkdirAll(dirs[target], 0o755); err != nil {
			return nil, fmt.Errorf("making a volume of the image: %w", err)
		}
		all = append(all, bind(target, dirs[target], "rw"))
	}
	if len(dirs) == 0 {
		return all, nil
	}
	return all, p.o.Engine.CopyFromImage(ctx, img.Ref, dirs)
}

// relabel gives the pod's own files an SELinux label, as CRI runtimes do for the mounts that
// the kubelet asks them to relabel. hostPath volumes and claims are elsewhere and keep theirs, and
// so do NFS exports and images. A file system without labels is left as it is.
func (p *Pods) relabel(uid types.UID, label string) error {
	dir := p.o.Records.Dir(uid)
	paths, err := filepath.Glob(filepath.Join(dir, terminationLogs+"*"))
	if err != nil {
		return fmt.Errorf("looking for the termination messages of the pod: %w", err)
	}
	for _, name := range []string{"volumes", declaredDir, "shm", HostsFile, resolvFile, hostnameFile} {
		paths = append(paths, filepath.Join(dir, name))
	}
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
			if err == nil && (d.Name() == volume.NFSDir || d.Name() == volume.ImagesDir) {
				return fs.SkipDir
			}
			if err == nil {
				err = unix.Lsetxattr(path, "security.selinux", []byte(label+"\x00"), 0)
			}
			if errors.Is(err, unix.ENOTSUP) || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("labelling the volumes of the pod with %q: %w", label, err)
		}
	}
	return nil
}

// The files that every container of a pod mounts, below the pod's directory.
const (
	// HostsFile is written in place.
	HostsFile    = "etc-hosts"
	resolvFile   = "resolv.conf"
	hostnameFile = "hostname"
)

// writeFiles writes the files of the pod that its containers share.
func (p *Pods) writeFiles(pod *v1.Pod, sandbox engine.Sandbox) error {
	if err := p.writeHosts(pod, sandbox); err != nil {
		return err
	}
	resolv, err := os.ReadFile(p.o.Host.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the host's resolv.conf: %w", err)
	}
	dns, warnings, err := ocispec.ResolvConf(pod, ocispec.DNS{Host: resolv, Servers: p.o.Host.ClusterDNS, Domain: p.o.Host.ClusterDomain})
	if err != nil {
		return err
	}
	if pod.Spec.DNSPolicy == v1.DNSClusterFirst && !pod.Spec.HostNetwork && len(p.o.Host.ClusterDNS) == 0 {
		// Most pods have this policy by default: that is not worth a warning.
		p.o.Log.Info("dnsPolicy ClusterFirst without --cluster-dns: falling back to Default", "pod", pod.Namespace+"/"+pod.Name)
	}
	for _, w := range warnings {
		p.o.Log.Warn(w, "pod", pod.Namespace+"/"+pod.Name)
	}
	files := map[string][]byte{
		resolvFile:   dns,
		hostnameFile: []byte(sandbox.Hostname + "\n"),
	}
	for name, data := range files {
		if err := atomicfile.Write(filepath.Join(p.o.Records.Dir(pod.UID), name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeHosts writes the hosts file of the pod. Containers have it mounted while names change.
func (p *Pods) writeHosts(pod *v1.Pod, sandbox engine.Sandbox) error {
	host, err := os.ReadFile(p.o.Host.HostsFile)
	if err != nil && pod.Spec.HostNetwork && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the host's hosts file: %w", err)
	}
	file := ocispec.HostsFile(pod, sandbox, host)
	if p.o.Services != nil {
		if file, err = p.o.Services.WithNames(pod, file); err != nil {
			return err
		}
	}
	return atomicfile.Overwrite(filepath.Join(p.o.Records.Dir(pod.UID), HostsFile), file, 0o644)
}
