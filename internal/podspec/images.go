package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Image is a field of a pod that names an image.
type Image struct {
	Field  string  // its path in the pod
	Ref    *string // the field itself
	Policy v1.PullPolicy
}

// Images returns the images of the init containers, of the containers, of the ephemeral containers, and of the volumes.
func Images(pod *v1.Pod) []Image {
	var all []Image
	add := func(path string, i int, c *v1.Container) {
		all = append(all, Image{fmt.Sprintf("spec.%s[%d].image", path, i), &c.Image, c.ImagePullPolicy})
	}
	for i := range pod.Spec.InitContainers {
		add("initContainers", i, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		add("containers", i, &pod.Spec.Containers[i])
	}
	for i, c := range Ephemeral(pod) {
		add("ephemeralContainers", i, c)
	}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			all = append(all, Image{fmt.Sprintf("spec.volumes[%d].image.reference", i), &v.Reference, v.PullPolicy})
		}
	}
	return all
}
