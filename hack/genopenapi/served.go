package main

import "strings"

// kind is the value of the extension x-kubernetes-group-version-kind.
type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// group is one document: a group and version of the API.
type group struct {
	path  string // of the document, below /openapi/v3
	kinds []kind // those with a schema
}

// served lists what "runonce serve" has. Eviction belongs to policy/v1, but is a subresource of pods: Kubernetes has its
// schema in the document of pods, and in that of policy/v1 nothing that is served here.
func served() []group {
	core := kinds("", "Pod Node Namespace Event Service ConfigMap Secret ReplicationController"+
		" PodList NodeList NamespaceList EventList ServiceList ConfigMapList SecretList ReplicationControllerList")
	return []group{
		{"api/v1", append(core, kinds("policy", "Eviction")...)},
		{"apis/apps/v1", kinds("apps", "Deployment ReplicaSet StatefulSet DaemonSet"+
			" DeploymentList ReplicaSetList StatefulSetList DaemonSetList")},
		{"apis/batch/v1", kinds("batch", "Job CronJob JobList CronJobList")},
		{"apis/events.k8s.io/v1", kinds("events.k8s.io", "Event EventList")},
		{"apis/authentication.k8s.io/v1", kinds("authentication.k8s.io", "SelfSubjectReview")},
		{"apis/authorization.k8s.io/v1", kinds("authorization.k8s.io", "SelfSubjectAccessReview SelfSubjectRulesReview")},
	}
}

// kinds returns kinds of version v1.
func kinds(group, names string) []kind {
	var all []kind
	for name := range strings.FieldsSeq(names) {
		all = append(all, kind{group, "v1", name})
	}
	return all
}
