package manifests

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// claimProblem is why a claim has no volume.
type claimProblem struct{ message, hint string }

// bindClaims binds each claim to the volume that it names, that names it, or the smallest one
// that matches it (spec.volumeName, spec.claimRef). A claim without a volume and without a
// problem is to be provisioned: it gets a directory.
func (s *Set) bindClaims() map[*v1.PersistentVolumeClaim]*claimProblem {
	claims := slices.SortedFunc(slices.Values(s.Claims()), func(a, b *v1.PersistentVolumeClaim) int {
		return cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	volumes := slices.SortedFunc(slices.Values(all[*v1.PersistentVolume](s)), bySize)
	reserved, bySort := map[object][]*v1.PersistentVolume{}, map[volumeSort][]*v1.PersistentVolume{}
	for _, v := range volumes {
		if ref := v.Spec.ClaimRef; ref != nil {
			id := object{kindClaim, ref.Namespace, ref.Name}
			reserved[id] = append(reserved[id], v)
			continue
		}
		bySort[sortOf(v)] = append(bySort[sortOf(v)], v)
	}
	problems := map[*v1.PersistentVolumeClaim]*claimProblem{}
	// Volumes that were bound by hand come first, since no other claim may have them.
	for _, step := range []func(*v1.PersistentVolumeClaim) *claimProblem{
		s.named,
		func(c *v1.PersistentVolumeClaim) *claimProblem {
			return bindReserved(c, reserved[object{kindClaim, c.Namespace, c.Name}])
		},
		func(c *v1.PersistentVolumeClaim) *claimProblem { return bindMatching(c, bySort) },
	} {
		for _, c := range claims {
			if v, ok := s.PersistentVolume(c.Spec.VolumeName); problems[c] == nil && (!ok || !isFor(v, c)) {
				problems[c] = step(c)
			}
		}
	}
	return problems
}

func bySize(a, b *v1.PersistentVolume) int {
	return cmp.Or(storageSize(a.Spec.Capacity).Cmp(*storageSize(b.Spec.Capacity)), cmp.Compare(a.Name, b.Name))
}

func storageSize(list v1.ResourceList) *resource.Quantity {
	q := list[v1.ResourceStorage]
	return &q
}

// isFor says whether the volume is reserved for or bound to the claim.
func isFor(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == c.Name && ref.Namespace == c.Namespace
}

// named binds a claim to the volume that it names
// (pkg/controller/volume/persistentvolume.syncUnboundClaim).
func (s *Set) named(c *v1.PersistentVolumeClaim) *claimProblem {
	if c.Spec.VolumeName == "" {
		return nil
	}
	v, ok := s.PersistentVolume(c.Spec.VolumeName)
	if !ok {
		return &claimProblem{fmt.Sprintf("PersistentVolume %q is not in the input", c.Spec.VolumeName), "add it to the input, or leave out spec.volumeName"}
	}
	if v.Spec.ClaimRef != nil && !isFor(v, c) {
		return &claimProblem{fmt.Sprintf("volume %q already bound to a different claim.", v.Name), ""}
	}
	if why := mismatch(c, v); why != "" {
		return &claimProblem{fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, why), ""}
	}
	return bind(c, v)
}

// bind binds the two, unless volumes of that type are not supported here.
func bind(c *v1.PersistentVolumeClaim, v *v1.PersistentVolume) *claimProblem {
	if v.Spec.HostPath == nil && v.Spec.Local == nil && v.Spec.NFS == nil {
		return &claimProblem{
			fmt.Sprintf("PersistentVolume %q needs a storage driver", v.Name),
			"mount it on the host and make it a hostPath or local volume",
		}
	}
	c.Spec.VolumeName = v.Name
	v.Spec.ClaimRef = &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name}
	return nil
}

// mismatch says why the volume does not satisfy the claim (checkVolumeSatisfyClaim).
func mismatch(c *v1.PersistentVolumeClaim, v *v1.PersistentVolume) string {
	switch {
	case storageSize(v.Spec.Capacity).Cmp(*storageSize(c.Spec.Resources.Requests)) < 0:
		return "requested PV is too small"
	case volumeClass(v) != claimClass(c):
		return "storageClassName does not match"
	case volumeMode(v.Spec.VolumeMode) != volumeMode(c.Spec.VolumeMode):
		return "incompatible volumeMode"
	case !allows(v, c):
		return "incompatible accessMode"
	}
	return ""
}

// bindReserved binds a claim to one of the volumes whose claimRef names it.
func bindReserved(c *v1.PersistentVolumeClaim, volumes []*v1.PersistentVolume) *claimProblem {
	for _, v := range volumes {
		if storageSize(v.Spec.Capacity).Cmp(*storageSize(c.Spec.Resources.Requests)) >= 0 && volumeMode(v.Spec.VolumeMode) == volumeMode(c.Spec.VolumeMode) {
			return bind(c, v)
		}
	}
	return nil
}

// volumeSort is what volumes have in common that satisfy the same claims, except for their size
// and labels.
type volumeSort struct {
	class       string
	mode        v1.PersistentVolumeMode
	accessModes string
}

func sortOf(v *v1.PersistentVolume) volumeSort {
	return volumeSort{volumeClass(v), volumeMode(v.Spec.VolumeMode), fmt.Sprint(v.Spec.AccessModes)}
}

// bindMatching binds a claim to the smallest volume that satisfies it
// (component-helpers/storage/volume.FindMatchingVolume), and rejects claims that need a volume
// when there is none. The volumes of a sort are ordered by size.
func bindMatching(c *v1.PersistentVolumeClaim, bySort map[volumeSort][]*v1.PersistentVolume) *claimProblem {
	selector, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
	if err != nil {
		return &claimProblem{err.Error(), ""}
	}
	var best *v1.PersistentVolume
	for _, volumes := range bySort {
		first, _ := slices.BinarySearchFunc(volumes, storageSize(c.Spec.Resources.Requests), func(v *v1.PersistentVolume, size *resource.Quantity) int {
			return storageSize(v.Spec.Capacity).Cmp(*size)
		})
		if first == len(volumes) || mismatch(c, volumes[first]) != "" {
			continue
		}
		i := slices.IndexFunc(volumes[first:], func(v *v1.PersistentVolume) bool {
			return v.Spec.ClaimRef == nil && (c.Spec.Selector == nil || selector.Matches(labels.Set(v.Labels)))
		})
		if i >= 0 && (best == nil || bySize(volumes[first+i], best) < 0) {
			best = volumes[first+i]
		}
	}
	if best != nil {
		return bind(c, best)
	}
	switch class, given := givenClass(c); {
	case given && class == "":
		return &claimProblem{`no PersistentVolume in the input matches, and storageClassName "" prevents provisioning one`, "add one, or leave out storageClassName"}
	case c.Spec.Selector != nil:
		return &claimProblem{"no PersistentVolume in the input matches, and a claim with a selector is not provisioned", "add one, or leave out the selector"}
	}
	return nil
}

// allows says whether the volume has every access mode of the claim.
func allows(v *v1.PersistentVolume, c *v1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(c.Spec.AccessModes, func(m v1.PersistentVolumeAccessMode) bool { return !slices.Contains(v.Spec.AccessModes, m) })
}

func volumeMode(m *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if m == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *m
}

// givenClass is the storage class of a claim; the older annotation overrides the field.
func givenClass(c *v1.PersistentVolumeClaim) (string, bool) {
	if class, ok := c.Annotations[v1.BetaStorageClassAnnotation]; ok {
		return class, true
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName, true
	}
	return "", false
}

func claimClass(c *v1.PersistentVolumeClaim) string {
	class, _ := givenClass(c)
	return class
}

func volumeClass(v *v1.PersistentVolume) string {
	if class, ok := v.Annotations[v1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return v.Spec.StorageClassName
}
