package apiserver

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

// definedResources returns those of objects that runs have read beside pods.
func definedResources() []*resource {
	defined := func(group, name, singular, kind, short string) metav1.APIResource {
		r := metav1.APIResource{Name: name, SingularName: singular, Kind: kind, Namespaced: true, Verbs: readable, Group: group, Version: "v1"}
		if short != "" {
			r.ShortNames = []string{short}
		}
		if group != "" || kind == "ReplicationController" {
			r.Categories = []string{"all"}
		}
		return r
	}
	return []*resource{
		{APIResource: defined("", mirror.ConfigMaps, "configmap", "ConfigMap", "cm"), list: func() runtime.Object { return &v1.ConfigMapList{} }},
		{APIResource: defined("", mirror.Secrets, "secret", "Secret", ""), list: func() runtime.Object { return &v1.SecretList{} }, fields: selectable(secretFields)},
		{
			APIResource: defined("", mirror.ReplicationControllers, "replicationcontroller", "ReplicationController", "rc"),
			list:        func() runtime.Object { return &v1.ReplicationControllerList{} },
			fields:      selectable(func(rc *v1.ReplicationController) fields.Set { return replicaFields(rc.Status.Replicas) }),
		},
		{APIResource: defined("apps", mirror.Deployments, "deployment", "Deployment", "deploy"), list: func() runtime.Object { return &appsv1.DeploymentList{} }},
		{APIResource: defined("apps", mirror.StatefulSets, "statefulset", "StatefulSet", "sts"), list: func() runtime.Object { return &appsv1.StatefulSetList{} }},
		{APIResource: defined("apps", mirror.DaemonSets, "daemonset", "DaemonSet", "ds"), list: func() runtime.Object { return &appsv1.DaemonSetList{} }},
		{
			APIResource: defined("apps", mirror.ReplicaSets, "replicaset", "ReplicaSet", "rs"), list: func() runtime.Object { return &appsv1.ReplicaSetList{} },
			fields: selectable(func(rs *appsv1.ReplicaSet) fields.Set { return replicaFields(rs.Status.Replicas) }),
		},
		{APIResource: defined("batch", mirror.Jobs, "job", "Job", ""), list: func() runtime.Object { return &batchv1.JobList{} }, fields: selectable(jobFields)},
		{APIResource: defined("batch", mirror.CronJobs, "cronjob", "CronJob", "cj"), list: func() runtime.Object { return &batchv1.CronJobList{} }},
	}
}

// secretFields follows pkg/registry/core/secret SelectableFields.
func secretFields(s *v1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} }

// replicaFields follows AddFieldLabelConversionsForReplicationController of pkg/apis/core/v1, and that for ReplicaSets.
func replicaFields(n int32) fields.Set { return fields.Set{"status.replicas": strconv.Itoa(int(n))} }

// jobFields follows pkg/registry/batch/job JobToSelectableFields.
func jobFields(job *batchv1.Job) fields.Set {
	return fields.Set{"status.successful": strconv.Itoa(int(job.Status.Succeeded))}
}
