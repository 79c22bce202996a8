package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/internal/podspec"
)

// enoughToStart is the memory with which runc and crun start a container for sure, in bytes: runc needs
// between 1 and 4 MiB, crun less than 256 KiB.
const enoughToStart = 16 << 20

// failedStart is a container that the OCI runtime has not started.
type failedStart struct {
	pod       *v1.Pod
	container *v1.Container
	spec      *specs.Spec
	inMemory  func(*v1.Pod) map[string]int64 // what the pod's volumes in memory hold, in bytes
}

// explain adds to the error what of the pod is its cause, if one is known.
func (s failedStart) explain(err error) error {
	if failure.Reason(err, "") != failure.ReasonRunError {
		return err
	}
	for _, explanation := range []func(error) error{s.program, s.workingDir, s.mountPoint, s.memoryLimit} {
		if explained := explanation(err); explained != nil {
			return explained
		}
	}
	return err
}

// program is about a program that exists and cannot be run.
func (s failedStart) program(err error) error {
	if advice := failure.ExecAdvice(err.Error()); advice != "" {
		return fmt.Errorf("%w: %s", err, advice)
	}
	return nil
}

func (s failedStart) workingDir(err error) error {
	text, cwd := err.Error(), s.spec.Process.Cwd
	if !strings.Contains(text, ": mkdir "+cwd+": ") && !strings.Contains(text, ": chdir ") {
		return nil
	}
	final := failure.IsRefused(err) || strings.HasSuffix(strings.ToLower(text), ": "+syscall.ENOENT.Error()) // crun
	return &failure.Error{Final: final, Err: fmt.Errorf("working directory %q (workingDir, or that of the image): %w", cwd, err)}
}

// memoryLimit is about a limit that is too low, also since a volume in memory has used it up.
func (s failedStart) memoryLimit(err error) error {
	limit, field := memoryLimit(s.pod, s.container)
	if limit == nil {
		return nil
	}
	text := err.Error()
	_, held := largest(s.inMemory(s.pod))
	if !failure.LacksMemory(text) && (limit.Value()-held >= enoughToStart || !failure.WasKilled(text)) {
		return nil
	}
	if full := fullVolume(s.pod, s.container, s.inMemory); full != "" {
		return &failure.Error{Ended: true, Err: fmt.Errorf("%s: %w", full, err)}
	}
	return &failure.Error{Ended: true, Err: fmt.Errorf("the memory limit of %s (%s) is too low for it to start: raise it: %w", limit, field, err)}
}

// mountPoint is about a volume in which the OCI runtime cannot make a mount point: it is mounted
// read-only, and does not have it.
func (s failedStart) mountPoint(err error) error {
	if !errors.Is(err, syscall.EROFS) {
		return nil
	}
	target := named(err.Error(), s.spec.Mounts)
	volume, in := inWay(s.container, s.spec.Mounts, target)
	if volume == nil {
		return nil
	}
	if _, statErr := os.Lstat(filepath.Join(volume.Source, in)); !errors.Is(statErr, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%w: volume %q is mounted read-only at %s and has no %s: %s",
		err, nameOfMount(s.container, volume.Destination), filepath.Clean(volume.Destination), in, remedy(s.container, target))
}

// fullVolume says which volume in memory leaves the container too little of its memory limit, empty if there is
// none.
func fullVolume(pod *v1.Pod, c *v1.Container, inMemory func(*v1.Pod) map[string]int64) string {
	limit, field := memoryLimit(pod, c)
	if limit == nil {
		return ""
	}
	name, held := largest(inMemory(pod))
	if 2*held < limit.Value() {
		return ""
	}
	return fmt.Sprintf("the emptyDir volume %q (medium Memory) holds %s of the memory limit of %s (%s): raise the limit, or give the volume a lower sizeLimit",
		name, resource.NewQuantity(held, resource.BinarySI), limit, field)
}

// memoryLimit returns the memory limit of the container, or of its pod, and the field that has it; nil for
// none.
func memoryLimit(pod *v1.Pod, c *v1.Container) (*resource.Quantity, string) {
	if q := c.Resources.Limits.Memory(); !q.IsZero() {
		return q, "resources.limits.memory"
	}
	if r := pod.Spec.Resources; r != nil && !r.Limits.Memory().IsZero() {
		return r.Limits.Memory(), "spec.resources.limits.memory"
	}
	return nil, ""
}

// largest returns the largest value with its key, 0 for none.
func largest(m map[string]int64) (key string, value int64) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] > value {
			key, value = k, m[k]
		}
	}
	return key, value
}

// named returns the target of the mount that a message is about: the longest one in it. crun leaves out
// the first slash.
func named(message string, mounts []specs.Mount) (target string) {
	for _, m := range mounts {
		if t := filepath.Clean(m.Destination); len(t) > len(target) && strings.Contains(message, strings.TrimPrefix(t, "/")) {
			target = t
		}
	}
	return target
}

// inWay returns the read-only volume in which the target of a mount is, and the path in it; nil if
// that is in none.
func inWay(c *v1.Container, mounts []specs.Mount, target string) (volume *specs.Mount, in string) {
	for i := range mounts {
		m := &mounts[i]
		rest, below := strings.CutPrefix(target, strings.TrimSuffix(filepath.Clean(m.Destination), "/")+"/")
		if below && rest != "" && (volume == nil || len(rest) < len(in)) {
			volume, in = m, rest
		}
	}
	if volume == nil || nameOfMount(c, volume.Destination) == "" || !slices.Contains(volume.Options, "ro") && !slices.Contains(volume.Options, "rro") {
		return nil, ""
	}
	return volume, in
}

// nameOfMount returns the name of the volume that is mounted there, "" for none.
func nameOfMount(c *v1.Container, target string) string {
	for _, m := range c.VolumeMounts {
		if filepath.Clean("/"+m.MountPath) == filepath.Clean(target) {
			return m.Name
		}
	}
	return ""
}

func remedy(c *v1.Container, target string) string {
	for _, f := range podspec.NodeFiles(c) {
		if filepath.Clean(f.Path) == target {
			return f.Remedy
		}
	}
	return "mount the volume writable, or make it there"
}
