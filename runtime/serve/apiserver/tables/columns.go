package tables

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type columns = []metav1.TableColumnDefinition

// columnsOf has the columns of the kinds that have their own (AddHandlers). Each caller gets new ones, and may change
// them.
var columnsOf = map[string]func() columns{
	"Pod":            podColumns,
	"Node":           nodeColumns,
	"Namespace":      namespaceColumns,
	"Event":          eventColumns,
	"Service":        serviceColumns,
	"ConfigMap":      configMapColumns,
	"Secret":         secretColumns,
	"ServiceAccount": func() columns { return columns{name(), created()} },
	"Job":            jobColumns,
	"CronJob":        cronJobColumns,
	"Deployment":     deploymentColumns,
	"ReplicaSet":     replicaSetColumns,
	"StatefulSet":    statefulSetColumns,
	"DaemonSet":      daemonSetColumns,

	"ReplicationController": replicationControllerColumns,
}

// Columns returns the columns of a table of objects of the kind. Kinds of which this package knows nothing have those
// that an API server has for them: the name and the time of creation.
func Columns(kind string) []metav1.TableColumnDefinition {
	if of, ok := columnsOf[kind]; ok {
		return of()
	}
	return columns{
		name(),
		{Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]},
	}
}

func text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

func integer(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

// wide makes the column one that kubectl prints only with -o wide.
func wide(c metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	c.Priority = 1
	return c
}

// name is the column that kubectl prints, with the kind, when only names are wanted.
func name() metav1.TableColumnDefinition {
	c := text("Name", metav1.ObjectMeta{}.SwaggerDoc()["name"])
	c.Format = "name"
	return c
}

// created is the column of the ages of objects.
func created() metav1.TableColumnDefinition {
	return text("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
}

// withTemplate adds the columns of what a workload's pods run.
func withTemplate(own ...metav1.TableColumnDefinition) columns {
	return append(
		own,
		wide(text("Containers", "Names of each container in the template.")),
		wide(text("Images", "Images referenced by each container in the template.")),
	)
}

// withSelector adds the columns of what a workload's pods run, and of how it finds them.
func withSelector(description string, own ...metav1.TableColumnDefinition) columns {
	return append(withTemplate(own...), wide(text("Selector", description)))
}

func podColumns() columns {
	spec, status := v1.PodSpec{}.SwaggerDoc(), v1.PodStatus{}.SwaggerDoc()
	return columns{
		name(),
		text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
		text("Status", "The aggregate status of the containers in this pod."),
		text("Restarts", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."),
		created(),
		wide(text("IP", status["podIP"])),
		wide(text("Node", spec["nodeName"])),
		wide(text("Nominated Node", status["nominatedNodeName"])),
		wide(text("Readiness Gates", spec["readinessGates"])),
	}
}

func nodeColumns() columns {
	status, info := v1.NodeStatus{}.SwaggerDoc(), v1.NodeSystemInfo{}.SwaggerDoc()
	return columns{
		name(),
		text("Status", "The status of the node"),
		text("Roles", "The roles of the node"),
		created(),
		text("Version", info["kubeletVersion"]),
		wide(text("Internal-IP", status["addresses"])),
		wide(text("External-IP", status["addresses"])),
		wide(text("OS-Image", info["osImage"])),
		wide(text("Kernel-Version", info["kernelVersion"])),
		wide(text("Container-Runtime", info["containerRuntimeVersion"])),
	}
}

func namespaceColumns() columns {
	return columns{name(), text("Status", "The status of the namespace"), created()}
}

func eventColumns() columns {
	doc := v1.Event{}.SwaggerDoc()
	return columns{
		text("Last Seen", doc["lastTimestamp"]),
		text("Type", doc["type"]),
		text("Reason", doc["reason"]),
		text("Object", doc["involvedObject"]),
		wide(text("Subobject", v1.ObjectReference{}.SwaggerDoc()["fieldPath"])),
		wide(text("Source", doc["source"])),
		text("Message", doc["message"]),
		wide(text("First Seen", doc["firstTimestamp"])),
		wide(text("Count", doc["count"])),
		wide(name()),
	}
}

func serviceColumns() columns {
	spec := v1.ServiceSpec{}.SwaggerDoc()
	return columns{
		name(),
		text("Type", spec["type"]),
		text("Cluster-IP", spec["clusterIP"]),
		text("External-IP", spec["externalIPs"]),
		text("Port(s)", spec["ports"]),
		created(),
		wide(text("Selector", spec["selector"])),
	}
}

func configMapColumns() columns {
	return columns{name(), text("Data", v1.ConfigMap{}.SwaggerDoc()["data"]), created()}
}

func secretColumns() columns {
	doc := v1.Secret{}.SwaggerDoc()
	return columns{name(), text("Type", doc["type"]), text("Data", doc["data"]), created()}
}

func jobColumns() columns {
	return withSelector(
		batchv1.JobSpec{}.SwaggerDoc()["selector"],
		name(),
		text("Status", "Status of the job."),
		text("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"]),
		text("Duration", "Time required to complete the job."),
		created(),
	)
}

func cronJobColumns() columns {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	return withSelector(
		batchv1.JobSpec{}.SwaggerDoc()["selector"],
		name(),
		text("Schedule", spec["schedule"]),
		text("Timezone", spec["timeZone"]),
		metav1.TableColumnDefinition{Name: "Suspend", Type: "boolean", Description: spec["suspend"]},
		integer("Active", status["active"]),
		text("Last Schedule", status["lastScheduleTime"]),
		created(),
	)
}

func deploymentColumns() columns {
	status := appsv1.DeploymentStatus{}.SwaggerDoc()
	return withSelector(
		appsv1.DeploymentSpec{}.SwaggerDoc()["selector"],
		name(),
		text("Ready", "Number of the pod with ready state"),
		text("Up-to-date", status["updatedReplicas"]),
		text("Available", status["availableReplicas"]),
		created(),
	)
}

func replicaSetColumns() columns {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return withSelector(
		spec["selector"],
		name(),
		integer("Desired", spec["replicas"]),
		integer("Current", status["replicas"]),
		integer("Ready", status["readyReplicas"]),
		created(),
	)
}

func replicationControllerColumns() columns {
	spec, status := v1.ReplicationControllerSpec{}.SwaggerDoc(), v1.ReplicationControllerStatus{}.SwaggerDoc()
	return withSelector(
		spec["selector"],
		name(),
		integer("Desired", spec["replicas"]),
		integer("Current", status["replicas"]),
		integer("Ready", status["readyReplicas"]),
		created(),
	)
}

func statefulSetColumns() columns {
	return withTemplate(name(), text("Ready", "Number of the pod with ready state"), created())
}

func daemonSetColumns() columns {
	status := appsv1.DaemonSetStatus{}.SwaggerDoc()
	return withSelector(
		appsv1.DaemonSetSpec{}.SwaggerDoc()["selector"],
		name(),
		integer("Desired", status["desiredNumberScheduled"]),
		integer("Current", status["currentNumberScheduled"]),
		integer("Ready", status["numberReady"]),
		integer("Up-to-date", status["updatedNumberScheduled"]),
		integer("Available", status["numberAvailable"]),
		text("Node Selector", v1.PodSpec{}.SwaggerDoc()["nodeSelector"]),
		created(),
	)
}
