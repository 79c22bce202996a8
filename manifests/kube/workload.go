package kube

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsapi "k8s.io/kubernetes/pkg/apis/apps/v1"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchapi "k8s.io/kubernetes/pkg/apis/batch/v1"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// Deployment sets the defaults of the Deployment and validates it.
func (Rules) Deployment(o *appsv1.Deployment) field.ErrorList {
	appsapi.SetObjectDefaults_Deployment(o)
	o.Namespace = namespace(o.Namespace)
	var in apps.Deployment
	if err := appsapi.Convert_v1_Deployment_To_apps_Deployment(o, &in, nil); err != nil {
		return internal(err)
	}
	return appsvalidation.ValidateDeployment(&in, podutil.GetValidationOptionsFromPodTemplate(&in.Spec.Template, nil))
}

// ReplicaSet sets the defaults of the ReplicaSet and validates it.
func (Rules) ReplicaSet(o *appsv1.ReplicaSet) field.ErrorList {
	appsapi.SetObjectDefaults_ReplicaSet(o)
	o.Namespace = namespace(o.Namespace)
	var in apps.ReplicaSet
	if err := appsapi.Convert_v1_ReplicaSet_To_apps_ReplicaSet(o, &in, nil); err != nil {
		return internal(err)
	}
	return appsvalidation.ValidateReplicaSet(&in, podutil.GetValidationOptionsFromPodTemplate(&in.Spec.Template, nil))
}

// StatefulSet sets the defaults of the StatefulSet and validates it.
func (Rules) StatefulSet(o *appsv1.StatefulSet) field.ErrorList {
	appsapi.SetObjectDefaults_StatefulSet(o)
	o.Namespace = namespace(o.Namespace)
	var in apps.StatefulSet
	if err := appsapi.Convert_v1_StatefulSet_To_apps_StatefulSet(o, &in, nil); err != nil {
		return internal(err)
	}
	opts := podutil.GetValidationOptionsFromPodTemplate(&in.Spec.Template, nil)
	return appsvalidation.ValidateStatefulSet(&in, appsvalidation.StatefulSetValidationOptions{}, opts)
}

// DaemonSet sets the defaults of the DaemonSet and validates it.
func (Rules) DaemonSet(o *appsv1.DaemonSet) field.ErrorList {
	appsapi.SetObjectDefaults_DaemonSet(o)
	o.Namespace = namespace(o.Namespace)
	var in apps.DaemonSet
	if err := appsapi.Convert_v1_DaemonSet_To_apps_DaemonSet(o, &in, nil); err != nil {
		return internal(err)
	}
	return appsvalidation.ValidateDaemonSet(&in, podutil.GetValidationOptionsFromPodTemplate(&in.Spec.Template, nil))
}

// ReplicationController sets the defaults of the controller and validates it.
func (Rules) ReplicationController(o *v1.ReplicationController) field.ErrorList {
	corev1.SetObjectDefaults_ReplicationController(o)
	o.Namespace = namespace(o.Namespace)
	var in core.ReplicationController
	if err := corev1.Convert_v1_ReplicationController_To_core_ReplicationController(o, &in, nil); err != nil {
		return internal(err)
	}
	return validation.ValidateReplicationController(&in, podutil.GetValidationOptionsFromPodTemplate(in.Spec.Template, nil))
}

// Job sets the defaults of the Job, gives it the selector and labels that an API server
// generates (pkg/registry/batch/job/strategy.go) and validates it. uid is the UID that
// the labels carry.
func (Rules) Job(o *batchv1.Job, uid types.UID) field.ErrorList {
	batchapi.SetObjectDefaults_Job(o)
	o.Namespace, o.UID = namespace(o.Namespace), uid
	if !*o.Spec.ManualSelector {
		generateSelector(o)
	}
	var in batch.Job
	if err := batchapi.Convert_v1_Job_To_batch_Job(o, &in, nil); err != nil {
		return internal(err)
	}
	return batchvalidation.ValidateJobCreate(&in, batchvalidation.JobValidationOptions{
		PodValidationOptions:  podutil.GetValidationOptionsFromPodTemplate(&in.Spec.Template, nil),
		RequirePrefixedLabels: true,
	})
}

func generateSelector(o *batchv1.Job) {
	labels := o.Spec.Template.Labels
	if labels == nil {
		labels = map[string]string{}
		o.Spec.Template.Labels = labels
	}
	for key, value := range map[string]string{
		batch.LegacyJobNameLabel: o.Name, batch.JobNameLabel: o.Name,
		batch.LegacyControllerUidLabel: string(o.UID), batch.ControllerUidLabel: string(o.UID),
	} {
		if _, ok := labels[key]; !ok {
			labels[key] = value
		}
	}
	if o.Spec.Selector == nil {
		o.Spec.Selector = &metav1.LabelSelector{}
	}
	if o.Spec.Selector.MatchLabels == nil {
		o.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := o.Spec.Selector.MatchLabels[batch.ControllerUidLabel]; !ok {
		o.Spec.Selector.MatchLabels[batch.ControllerUidLabel] = string(o.UID)
	}
}

// CronJob sets the defaults of the CronJob and validates it.
func (Rules) CronJob(o *batchv1.CronJob) field.ErrorList {
	batchapi.SetObjectDefaults_CronJob(o)
	o.Namespace = namespace(o.Namespace)
	var in batch.CronJob
	if err := batchapi.Convert_v1_CronJob_To_batch_CronJob(o, &in, nil); err != nil {
		return internal(err)
	}
	return batchvalidation.ValidateCronJobCreate(&in, podutil.GetValidationOptionsFromPodTemplate(&in.Spec.JobTemplate.Spec.Template, nil))
}
