package validation

import (
	"cmp"
	"fmt"
	"maps"
	_ "time/tzdata" // for the time zones of CronJobs, as in kube-apiserver: machines may have none

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
)

func options(template *core.PodTemplateSpec) corevalidation.PodValidationOptions {
	return podutil.GetValidationOptionsFromPodTemplate(template, nil)
}

// workload sets the defaults of a workload and validates it.
func workload(object metav1.Object) field.ErrorList {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return validate(o, appsapi.SetObjectDefaults_Deployment, appsapi.Convert_v1_Deployment_To_apps_Deployment,
			func(in *apps.Deployment) field.ErrorList {
				return appsvalidation.ValidateDeployment(in, options(&in.Spec.Template))
			})
	case *appsv1.ReplicaSet:
		return validate(o, appsapi.SetObjectDefaults_ReplicaSet, appsapi.Convert_v1_ReplicaSet_To_apps_ReplicaSet,
			func(in *apps.ReplicaSet) field.ErrorList {
				return appsvalidation.ValidateReplicaSet(in, options(&in.Spec.Template))
			})
	case *appsv1.StatefulSet:
		return validate(o, appsapi.SetObjectDefaults_StatefulSet, appsapi.Convert_v1_StatefulSet_To_apps_StatefulSet,
			func(in *apps.StatefulSet) field.ErrorList {
				return appsvalidation.ValidateStatefulSet(in, appsvalidation.StatefulSetValidationOptions{}, options(&in.Spec.Template))
			})
	case *appsv1.DaemonSet:
		return validate(o, appsapi.SetObjectDefaults_DaemonSet, appsapi.Convert_v1_DaemonSet_To_apps_DaemonSet,
			func(in *apps.DaemonSet) field.ErrorList {
				return appsvalidation.ValidateDaemonSet(in, options(&in.Spec.Template))
			})
	case *v1.ReplicationController:
		return validate(o, corev1.SetObjectDefaults_ReplicationController, corev1.Convert_v1_ReplicationController_To_core_ReplicationController,
			func(in *core.ReplicationController) field.ErrorList {
				return corevalidation.ValidateReplicationController(in, options(in.Spec.Template))
			})
	case *batchv1.Job:
		return validate(o, setJobDefaults, batchapi.Convert_v1_Job_To_batch_Job, func(in *batch.Job) field.ErrorList {
			return batchvalidation.ValidateJobCreate(in, batchvalidation.JobValidationOptions{
				PodValidationOptions: options(&in.Spec.Template), RequirePrefixedLabels: true,
			})
		})
	case *batchv1.CronJob:
		return validate(o, batchapi.SetObjectDefaults_CronJob, batchapi.Convert_v1_CronJob_To_batch_CronJob,
			func(in *batch.CronJob) field.ErrorList {
				return batchvalidation.ValidateCronJobCreate(in, options(&in.Spec.JobTemplate.Spec.Template))
			})
	}
	return internal(fmt.Errorf("no rules for %T", object))
}

// setJobDefaults also sets the selector and labels that an API server generates
// (pkg/registry/batch/job/strategy.go).
func setJobDefaults(o *batchv1.Job) {
	batchapi.SetObjectDefaults_Job(o)
	if *o.Spec.ManualSelector {
		return
	}
	labels := map[string]string{
		batch.LegacyJobNameLabel: o.Name, batch.JobNameLabel: o.Name,
		batch.LegacyControllerUidLabel: string(o.UID), batch.ControllerUidLabel: string(o.UID),
	}
	maps.Copy(labels, o.Spec.Template.Labels)
	o.Spec.Template.Labels = labels
	o.Spec.Selector = cmp.Or(o.Spec.Selector, &metav1.LabelSelector{})
	selected := map[string]string{batch.ControllerUidLabel: string(o.UID)}
	maps.Copy(selected, o.Spec.Selector.MatchLabels)
	o.Spec.Selector.MatchLabels = selected
}
