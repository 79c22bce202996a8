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

// Images returns the images of the init containers, of the containers, and of the volumes: those of a manifest.
func Images(pod *v1.Pod) []Image {
	var all []Image
	for _, list := range []struct {
		path       string
		containers []v1.Container
	}{{"spec.initContainers", pod.Spec.InitContainers}, {"spec.containers", pod.Spec.Containers}} {
		for i := range list.containers {
			c := &list.containers[i]
			all = append(all, Image{fmt.Sprintf("%s[%d].image", list.path, i), &c.Image, c.ImagePullPolicy})
		}
	}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			all = append(all, Image{fmt.Sprintf("spec.volumes[%d].image.reference", i), &v.Reference, v.PullPolicy})
		}
	}
	return all
}
