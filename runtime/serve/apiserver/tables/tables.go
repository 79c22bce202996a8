// Package tables makes the rows that kubectl prints of Kubernetes objects, as an API server does for clients that ask
// for a Table. The columns and the cells are those of pkg/printers/internalversion of Kubernetes, whose package also
// needs the internal types of all API groups, and would make the program 19 MB larger. A test compares the two.
package tables

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// What is in a cell that has no value.
const (
	none    = "<none>"
	unknown = "<unknown>"
	unset   = "<unset>"
)

// Row returns the row of an object for the columns of its kind, also for those that kubectl prints only with -o wide.
// The object has the API's defaults, as those of an API server have. The row's own Object is left empty.
func Row(o metav1.Object, now time.Time) metav1.TableRow {
	row := metav1.TableRow{Cells: cells(o, now)}
	if pod, ok := o.(*v1.Pod); ok {
		row.Conditions = podConditions(pod.Status.Phase)
	}
	return row
}

// cells returns the cells of an object of any type.
func cells(o metav1.Object, now time.Time) []any {
	switch o := o.(type) {
	case *v1.Pod:
		return podCells(o, now)
	case *v1.Node:
		return nodeCells(o, now)
	case *v1.Namespace:
		return []any{o.Name, string(o.Status.Phase), age(o, now)}
	case *v1.Event:
		return eventCells(o, now)
	case *v1.Service:
		return serviceCells(o, now)
	case *v1.ConfigMap:
		return []any{o.Name, int64(len(o.Data) + len(o.BinaryData)), age(o, now)}
	case *v1.Secret:
		return []any{o.Name, string(o.Type), int64(len(o.Data)), age(o, now)}
	case *v1.ServiceAccount:
		return []any{o.Name, age(o, now)}
	}
	return workloadCells(o, now)
}

// workloadCells returns the cells of an object that makes pods, or of any other.
func workloadCells(o metav1.Object, now time.Time) []any {
	switch o := o.(type) {
	case *v1.ReplicationController:
		return replicationControllerCells(o, now)
	case *batchv1.Job:
		return jobCells(o, now)
	case *batchv1.CronJob:
		return cronJobCells(o, now)
	case *appsv1.Deployment:
		return deploymentCells(o, now)
	case *appsv1.ReplicaSet:
		return replicaSetCells(o, now)
	case *appsv1.StatefulSet:
		return statefulSetCells(o, now)
	case *appsv1.DaemonSet:
		return daemonSetCells(o, now)
	}
	// ConvertToTable of pkg/registry/rest in k8s.io/apiserver.
	return []any{o.GetName(), o.GetCreationTimestamp().UTC().Format(time.RFC3339)}
}

// age is how long ago the object was created.
func age(o metav1.Object, now time.Time) string { return since(o.GetCreationTimestamp().Time, now) }

// since is how long ago something was, as a person says it (translateTimestampSince).
func since(t, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t))
}
