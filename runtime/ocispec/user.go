package ocispec

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/user"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime/engine"
)

// identity is the user that the manifest or the image names: a number, or a name to be
// looked up in the image's passwd file.
type identity struct {
	uid  int64 // ignored with a name
	name string
}

// processUser returns the user and groups of the container's process. The user is
// runAsUser, else the image's (whose ":group" Kubernetes ignores), else root; the group is
// runAsGroup, else the user's own in the image's passwd file, else 0. Supplementary groups
// are the user's in the image's group file unless the policy is Strict, then fsGroup and
// supplementalGroups.
func processUser(c Context, container *v1.Container, s *v1.SecurityContext) (specs.User, error) {
	id, err := userOf(c.Image, s)
	if err != nil {
		return specs.User{}, err
	}
	if err := verifyNonRoot(c.Pod, container, s, id); err != nil {
		return specs.User{}, err
	}
	entry, found, err := lookUp(c.Image, id)
	if err != nil {
		return specs.User{}, err
	}
	gid := int64(entry.Gid)
	if s.RunAsGroup != nil {
		gid = *s.RunAsGroup
	}
	groups := []int64{gid}
	if found && !strictGroups(c.Pod) {
		members, err := imageGroups(c.Image, entry.Name)
		if err != nil {
			return specs.User{}, err
		}
		groups = append(groups, members...)
	}
	if pod := c.Pod.Spec.SecurityContext; pod != nil {
		if pod.FSGroup != nil {
			groups = append(groups, *pod.FSGroup)
		}
		groups = append(groups, pod.SupplementalGroups...)
	}
	u := specs.User{UID: uint32(entry.Uid), GID: uint32(gid)}
	for _, g := range groups {
		if err := checkID("group", g); err != nil {
			return specs.User{}, err
		}
		if !slices.Contains(u.AdditionalGids, uint32(g)) {
			u.AdditionalGids = append(u.AdditionalGids, uint32(g))
		}
	}
	return u, nil
}

// strictGroups reports whether the pod ignores the groups of its images.
func strictGroups(pod *v1.Pod) bool {
	s := pod.Spec.SecurityContext
	return s != nil && s.SupplementalGroupsPolicy != nil && *s.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict
}

func userOf(image engine.Image, s *v1.SecurityContext) (identity, error) {
	if s.RunAsUser != nil {
		return identity{uid: *s.RunAsUser}, checkID("runAsUser", *s.RunAsUser)
	}
	name, _, _ := strings.Cut(image.User, ":")
	if name == "" {
		return identity{}, nil
	}
	// A number that is too large is not a name either.
	if uid, err := strconv.ParseInt(name, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return identity{uid: uid}, checkID("the user of image "+image.Ref, uid)
	}
	return identity{name: name}, nil
}

// CommandUser returns the user and groups of a command in a container of the image: USER[:GROUP], each a name of the
// image or a number. Without a group they are those of the user in the image, as for a container.
func CommandUser(image engine.Image, ref string) (specs.User, error) {
	name, group, hasGroup := strings.Cut(ref, ":")
	image.User = name
	id, err := userOf(image, &v1.SecurityContext{})
	if err != nil {
		return specs.User{}, err
	}
	entry, found, err := lookUp(image, id)
	if err != nil {
		return specs.User{}, err
	}
	u := specs.User{UID: uint32(entry.Uid), GID: uint32(entry.Gid)}
	if hasGroup {
		if u.GID, err = groupOf(image, group); err != nil {
			return specs.User{}, err
		}
	}
	u.AdditionalGids = []uint32{u.GID}
	if hasGroup || !found {
		return u, nil
	}
	members, err := imageGroups(image, entry.Name)
	for _, g := range members {
		if err := checkID("group", g); err != nil {
			return specs.User{}, err
		}
		u.AdditionalGids = append(u.AdditionalGids, uint32(g))
	}
	return u, err
}

// groupOf returns the ID of a group of the image.
func groupOf(image engine.Image, name string) (uint32, error) {
	if gid, err := strconv.ParseInt(name, 10, 64); err == nil {
		return uint32(gid), checkID("group", gid)
	}
	groups, err := user.ParseGroupFilter(bytes.NewReader(image.Group), func(g user.Group) bool { return g.Name == name })
	if err != nil {
		return 0, failure.CreateErrorf("reading /etc/group of image %q: %w", image.Ref, err)
	}
	if len(groups) == 0 {
		return 0, failure.CreateErrorf("no group %q in /etc/group of image %q", name, image.Ref)
	}
	return uint32(groups[0].Gid), checkID("group", int64(groups[0].Gid))
}

// checkID checks an id against what runtimes accept (containerd's WithUser).
func checkID(what string, id int64) error {
	if id < 0 || id > math.MaxInt32 {
		return failure.CreateErrorf("%s: id %d is out of range 0-%d", what, id, math.MaxInt32)
	}
	return nil
}

// verifyNonRoot enforces runAsNonRoot (kuberuntime.verifyRunAsNonRoot).
func verifyNonRoot(pod *v1.Pod, c *v1.Container, s *v1.SecurityContext, id identity) error {
	if !isTrue(s.RunAsNonRoot) {
		return nil
	}
	who := pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")"
	switch {
	case id.name != "":
		return failure.ConfigErrorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root (pod: %q, container: %s)",
			id.name, who, c.Name)
	case id.uid != 0:
		return nil
	case s.RunAsUser != nil:
		return failure.ConfigErrorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", who, c.Name)
	}
	return failure.ConfigErrorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", who, c.Name)
}

// lookUp finds the user in the image's passwd file, which need not have a number but must
// have a name.
func lookUp(image engine.Image, id identity) (user.User, bool, error) {
	entries, err := user.ParsePasswdFilter(bytes.NewReader(image.Passwd), func(u user.User) bool {
		if id.name != "" {
			return u.Name == id.name
		}
		return int64(u.Uid) == id.uid
	})
	switch {
	case err != nil:
		return user.User{}, false, failure.CreateErrorf("reading /etc/passwd of image %q: %w", image.Ref, err)
	case len(entries) > 0:
		if err := checkID("group of user "+entries[0].Name, int64(entries[0].Gid)); err != nil {
			return user.User{}, false, err
		}
		return entries[0], true, checkID("user "+entries[0].Name, int64(entries[0].Uid))
	case id.name != "":
		return user.User{}, false, failure.CreateErrorf("no user %q in /etc/passwd of image %q", id.name, image.Ref)
	}
	return user.User{Uid: int(id.uid)}, false, nil
}

// imageGroups returns the groups that list the user as a member, except the one of its own
// name (containerd's WithAdditionalGIDs).
func imageGroups(image engine.Image, name string) ([]int64, error) {
	groups, err := user.ParseGroupFilter(bytes.NewReader(image.Group), func(g user.Group) bool {
		return g.Name != name && slices.Contains(g.List, name)
	})
	if err != nil {
		return nil, failure.CreateErrorf("reading /etc/group of image %q: %w", image.Ref, err)
	}
	gids := make([]int64, 0, len(groups))
	for _, g := range groups {
		gids = append(gids, int64(g.Gid))
	}
	return gids, nil
}
