package apiserver_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/runtime/serve/mirror"
)

// TestDefinitions: clients get all kinds that are kept, and select them as with an API server.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	m := newMachine()
	of := metav1.ObjectMeta{Namespace: "default", Name: "x", Labels: map[string]string{"app": "x"}}
	m.set(mirror.ConfigMaps, &v1.ConfigMap{ObjectMeta: of, Data: map[string]string{"key": "value"}})
	m.set(mirror.Secrets, &v1.Secret{ObjectMeta: of, Type: v1.SecretTypeOpaque, Data: map[string][]byte{"key": {}}})
	m.set(mirror.ReplicationControllers, &v1.ReplicationController{ObjectMeta: of, Status: v1.ReplicationControllerStatus{Replicas: 2}})
	m.set(mirror.Deployments, &appsv1.Deployment{ObjectMeta: of})
	m.set(mirror.ReplicaSets, &appsv1.ReplicaSet{ObjectMeta: of, Status: appsv1.ReplicaSetStatus{Replicas: 3}})
	m.set(mirror.StatefulSets, &appsv1.StatefulSet{ObjectMeta: of})
	m.set(mirror.DaemonSets, &appsv1.DaemonSet{ObjectMeta: of})
	m.set(mirror.Jobs, &batchv1.Job{ObjectMeta: of, Status: batchv1.JobStatus{Succeeded: 1}})
	m.set(mirror.CronJobs, &batchv1.CronJob{ObjectMeta: of})
	c := m.client(t)
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config, _ := m.serve(t)
		config.ContentType = contentType
		c = clientOf(t, config)
		cm, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{})
		must(t, err)
		want(t, "ConfigMap", cm.Data["key"], "value")
		job, err := c.BatchV1().Jobs("default").Get(t.Context(), "x", metav1.GetOptions{})
		must(t, err)
		want(t, "Job", job.Status.Succeeded, 1)
	}
	lists := func(o metav1.ListOptions) string {
		core, apps, batch := c.CoreV1(), c.AppsV1(), c.BatchV1()
		cms, err := core.ConfigMaps("").List(t.Context(), o)
		must(t, err)
		rcs, err := core.ReplicationControllers("").List(t.Context(), o)
		must(t, err)
		deployments, err := apps.Deployments("").List(t.Context(), o)
		must(t, err)
		sets, err := apps.StatefulSets("").List(t.Context(), o)
		must(t, err)
		daemons, err := apps.DaemonSets("").List(t.Context(), o)
		must(t, err)
		crons, err := batch.CronJobs("").List(t.Context(), o)
		must(t, err)
		return fmt.Sprint(len(cms.Items), len(rcs.Items), len(deployments.Items), len(sets.Items), len(daemons.Items), len(crons.Items))
	}
	want(t, "all", lists(metav1.ListOptions{LabelSelector: "app=x"}), "1 1 1 1 1 1")
	want(t, "none", lists(metav1.ListOptions{FieldSelector: "metadata.name=y"}), "0 0 0 0 0 0")
	for selector, n := range map[string]int{"type=Opaque": 1, "type=kubernetes.io/tls": 0} {
		list, err := c.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		must(t, err)
		want(t, selector, len(list.Items), n)
	}
	for selector, n := range map[string]int{"status.successful=1": 1, "status.successful=0": 0} {
		list, err := c.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		must(t, err)
		want(t, selector, len(list.Items), n)
	}
	for selector, n := range map[string]int{"status.replicas=3": 1, "status.replicas=2": 0} {
		list, err := c.AppsV1().ReplicaSets("").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		must(t, err)
		want(t, selector, len(list.Items), n)
	}
}
