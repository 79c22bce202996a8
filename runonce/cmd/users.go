package cmd

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/manifests/validation"
	"github.com/runonce/runonce/runonce/report"
	"github.com/runonce/runonce/runtime/engine"
)

// setUsers decides for pods that do not set hostUsers. With --user-namespaces they get users of their own where
// they and the machine can, which lacks what lacking says. A pod that was started keeps what it has, whatever this run
// wants: its files belong to these users. It returns notes on the pods.
func setUsers(pods, running []*v1.Pod, wanted bool, lacking string) map[types.UID]string {
	present := map[types.UID]*v1.Pod{}
	for _, pod := range running {
		present[pod.UID] = pod
	}
	notes := map[types.UID]string{}
	for _, pod := range pods {
		old := present[pod.UID]
		if pod.Spec.HostUsers != nil || !wanted && old == nil {
			continue
		}
		var why string
		switch mapped := old != nil && old.Spec.HostUsers != nil && !*old.Spec.HostUsers; {
		case old != nil && !mapped:
			why = "it was started so"
		case old == nil:
			why = cmp.Or(lacking, needsHostUsers(pod))
		}
		if why == "" {
			pod.Spec.HostUsers = new(false)
			notes[pod.UID] = "has users of its own (hostUsers: false)"
		} else if wanted {
			notes[pod.UID] = "has the users of the machine: " + why
		}
	}
	return notes
}

// needsHostUsers returns what of the pod works only, or maybe only, with the users of the machine, "" for nothing.
func needsHostUsers(pod *v1.Pod) string {
	if exposed := validation.Exposure(pod); exposed != "" {
		return exposed
	}
	for i := range pod.Spec.Volumes {
		// Their data may be on a file system that cannot map users, or be shared with others.
		switch v := &pod.Spec.Volumes[i]; {
		case v.NFS != nil, v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
			return fmt.Sprintf("volume %q", v.Name)
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		for _, id := range append([]int64{deref(s.RunAsUser), deref(s.RunAsGroup), deref(s.FSGroup)}, s.SupplementalGroups...) {
			if id >= engine.UserIDs {
				return fmt.Sprintf("user or group %d", id)
			}
		}
	}
	for _, c := range append(pod.Spec.InitContainers[:len(pod.Spec.InitContainers):len(pod.Spec.InitContainers)], pod.Spec.Containers...) {
		if s := c.SecurityContext; s != nil && max(deref(s.RunAsUser), deref(s.RunAsGroup)) >= engine.UserIDs {
			return fmt.Sprintf("user or group %d of container %q", max(deref(s.RunAsUser), deref(s.RunAsGroup)), c.Name)
		}
		for name := range c.Resources.Limits {
			if strings.Contains(string(name), "/") { // a device, whose files belong to users of the machine
				return fmt.Sprintf("%s of container %q", name, c.Name)
			}
		}
	}
	return ""
}

func deref(id *int64) int64 {
	if id == nil {
		return 0
	}
	return *id
}

// lacksUsers returns why the machine cannot give a pod users of its own, "" if it can.
func (t *nodeTarget) lacksUsers(ctx context.Context) string {
	pod := &v1.Pod{Spec: v1.PodSpec{HostUsers: new(false)}}
	return strings.TrimPrefix(t.engine.Unsupported(ctx, []*v1.Pod{pod})[pod.UID], "spec.hostUsers: false: ")
}

// newPlan returns the document for a plan, with notes on what the pods may do with the machine, and on
// their users if they were decided.
func newPlan(plan admit.Plan, users map[types.UID]string) report.Plan {
	document := report.NewPlan(plan)
	for i, d := range plan.Decisions {
		if d.Pod == nil {
			continue
		}
		for _, note := range []string{validation.Exposure(d.Pod), users[d.Pod.UID]} {
			if note != "" {
				document.Decisions[i].Notes = append(document.Decisions[i].Notes, note)
			}
		}
	}
	return document
}
