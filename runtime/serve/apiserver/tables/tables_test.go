package tables_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/serve/apiserver/tables"
)

// printer prints as an API server does.
type printer struct {
	*printers.HumanReadableGenerator
}

func newPrinter() printer {
	return printer{printers.NewTableGenerator().With(internalversion.AddHandlers)}
}

// compare returns the differences between Kubernetes' table of an object and this package's, "" for none.
func (p printer) compare(t *testing.T, o podspec.Object) string {
	t.Helper()
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	version := kinds[0].GroupVersion()
	version.Version = runtime.APIVersionInternal
	internal, err := legacyscheme.Scheme.ConvertToVersion(o, version)
	if err != nil {
		t.Fatal(err)
	}
	want, err := p.GenerateTable(internal, printers.GenerateOptions{Wide: true})
	if err != nil {
		t.Fatal(err)
	}
	row := tables.Row(o, time.Now())
	if len(want.Rows) != 1 || row.Object.Object != nil || row.Object.Raw != nil {
		t.Fatalf("%d rows, object %v", len(want.Rows), row.Object)
	}
	want.Rows[0].Object = runtime.RawExtension{}
	got := &metav1.Table{
		ListMeta: want.ListMeta, ColumnDefinitions: tables.Columns(kinds[0].Kind), Rows: []metav1.TableRow{row},
	}
	return cmp.Diff(want, got)
}

// compareAll compares the tables of all objects.
func compareAll[T podspec.Object](t *testing.T, objects map[string]T) {
	t.Helper()
	p := newPrinter()
	for name, o := range objects {
		if diff := p.compare(t, o); diff != "" {
			t.Errorf("%s: kubernetes (-), this package (+):\n%s", name, diff)
		}
	}
}

// ago is a time in the past. Ages are such that a test may take seconds, and still get the same text.
func ago(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

const (
	minutes = 25*time.Minute + 30*time.Second
	hours   = 5*time.Hour + 10*time.Minute + 30*time.Second
	days    = 40*24*time.Hour + 12*time.Hour
)

func meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "x", Namespace: "n", CreationTimestamp: ago(hours), ResourceVersion: "7"}
}

func TestAges(t *testing.T) {
	t.Parallel()
	objects := map[string]*v1.ServiceAccount{"none": {ObjectMeta: metav1.ObjectMeta{Name: "x"}}}
	for _, d := range []time.Duration{-time.Hour, minutes, hours, days, 1000*24*time.Hour + 12*time.Hour, 20 * 366 * 24 * time.Hour} {
		objects[d.String()] = &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "x", CreationTimestamp: ago(d)}}
	}
	compareAll(t, objects)
}

// TestOtherKinds: kinds that are not known here have the columns and the cells that an API server has for custom
// resources, with times in UTC.
func TestOtherKinds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 3, 4, 5, 6, 7, time.FixedZone("", 3600))
	got := tables.Row(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "x", CreationTimestamp: metav1.NewTime(at)}}, time.Now())
	if diff := cmp.Diff(metav1.TableRow{Cells: []any{"x", "2026-02-03T03:05:06Z"}}, got); diff != "" {
		t.Error(diff)
	}
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	want := []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
		{Name: "Created At", Type: "date", Description: doc["creationTimestamp"]},
	}
	if diff := cmp.Diff(want, tables.Columns("PersistentVolumeClaim")); diff != "" {
		t.Error(diff)
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	compareAll(t, map[string]*v1.Namespace{
		"new":         {ObjectMeta: meta()},
		"active":      {ObjectMeta: meta(), Status: v1.NamespaceStatus{Phase: v1.NamespaceActive}},
		"terminating": {ObjectMeta: meta(), Status: v1.NamespaceStatus{Phase: v1.NamespaceTerminating}},
	})
}

func TestData(t *testing.T) {
	t.Parallel()
	compareAll(t, map[string]*v1.ConfigMap{
		"empty": {ObjectMeta: meta()},
		"both":  {ObjectMeta: meta(), Data: map[string]string{"a": "1", "b": "2"}, BinaryData: map[string][]byte{"c": nil}},
	})
	compareAll(t, map[string]*v1.Secret{
		"empty":  {ObjectMeta: meta()},
		"opaque": {ObjectMeta: meta(), Type: v1.SecretTypeOpaque, Data: map[string][]byte{"a": nil, "b": nil}},
	})
}

func TestNodes(t *testing.T) {
	t.Parallel()
	conditions := func(ready ...v1.ConditionStatus) v1.NodeStatus {
		st := v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}}}
		for _, s := range ready {
			st.Conditions = append(st.Conditions, v1.NodeCondition{Type: v1.NodeReady, Status: s})
		}
		return st
	}
	labelled := func(labels map[string]string) *v1.Node {
		o := meta()
		o.Labels = labels
		return &v1.Node{ObjectMeta: o}
	}
	compareAll(t, map[string]*v1.Node{
		"empty":                  {ObjectMeta: meta()},
		"ready":                  {ObjectMeta: meta(), Status: conditions(v1.ConditionTrue)},
		"not ready":              {ObjectMeta: meta(), Status: conditions(v1.ConditionFalse)},
		"lost":                   {ObjectMeta: meta(), Status: conditions(v1.ConditionUnknown)},
		"two conditions":         {ObjectMeta: meta(), Status: conditions(v1.ConditionFalse, v1.ConditionTrue)},
		"other conditions":       {ObjectMeta: meta(), Status: conditions()},
		"unknown, unschedulable": {ObjectMeta: meta(), Spec: v1.NodeSpec{Unschedulable: true}},
		"ready, unschedulable":   {ObjectMeta: meta(), Spec: v1.NodeSpec{Unschedulable: true}, Status: conditions(v1.ConditionTrue)},
		"roles": labelled(map[string]string{
			"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "x", "kubernetes.io/role": "master", "other": "y",
		}),
		"role twice":          labelled(map[string]string{"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "worker"}),
		"empty role, another": labelled(map[string]string{"node-role.kubernetes.io/": "x", "node-role.kubernetes.io/worker": ""}),
		"empty roles":         labelled(map[string]string{"node-role.kubernetes.io/": "x", "kubernetes.io/role": ""}),
		"addresses": {ObjectMeta: meta(), Status: v1.NodeStatus{Addresses: []v1.NodeAddress{
			{Type: v1.NodeHostName, Address: "h"},
			{Type: v1.NodeExternalIP, Address: "1.2.3.4"},
			{Type: v1.NodeInternalIP, Address: "10.0.0.1"},
			{Type: v1.NodeInternalIP, Address: "10.0.0.2"},
			{Type: v1.NodeExternalIP, Address: "1.2.3.5"},
		}}},
		"info": {ObjectMeta: meta(), Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{
			KubeletVersion: "v1.37.0", OSImage: "Debian", KernelVersion: "6.1", ContainerRuntimeVersion: "containerd://2.4", Architecture: "amd64",
		}}},
		"only an architecture": {ObjectMeta: meta(), Status: v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{Architecture: "arm64"}}},
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	observed := metav1.NewMicroTime(time.Now().Add(-minutes))
	pod := v1.ObjectReference{Kind: "Pod", Name: "p", FieldPath: "spec.containers{c}"}
	compareAll(t, map[string]*v1.Event{
		"empty": {ObjectMeta: meta()},
		"full": {
			ObjectMeta: meta(), InvolvedObject: pod, Type: v1.EventTypeWarning, Reason: "BackOff", Message: " a\nb \n", Count: 3,
			FirstTimestamp: ago(days), LastTimestamp: ago(hours), Source: v1.EventSource{Component: "kubelet", Host: "h"},
		},
		"first only":   {ObjectMeta: meta(), FirstTimestamp: ago(days)},
		"last only":    {ObjectMeta: meta(), LastTimestamp: ago(days)},
		"event time":   {ObjectMeta: meta(), EventTime: observed},
		"both times":   {ObjectMeta: meta(), EventTime: observed, FirstTimestamp: ago(days)},
		"series":       {ObjectMeta: meta(), FirstTimestamp: ago(days), LastTimestamp: ago(hours), Count: 2, Series: &v1.EventSeries{Count: 5, LastObservedTime: observed}},
		"empty series": {ObjectMeta: meta(), FirstTimestamp: ago(days), Count: 2, Series: &v1.EventSeries{}},
		"no name":      {ObjectMeta: meta(), InvolvedObject: v1.ObjectReference{Kind: "Node"}},
		"component":    {ObjectMeta: meta(), Source: v1.EventSource{Component: "kubelet"}, ReportingController: "other"},
		"host":         {ObjectMeta: meta(), Source: v1.EventSource{Host: "h"}, ReportingInstance: "other"},
		"reporting":    {ObjectMeta: meta(), ReportingController: "runonce", ReportingInstance: "i"},
	})
}

func TestJobs(t *testing.T) {
	t.Parallel()
	with := func(types ...batchv1.JobConditionType) *batchv1.Job {
		job := &batchv1.Job{ObjectMeta: meta()}
		for _, c := range types {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c, Status: v1.ConditionTrue})
		}
		return job
	}
	deleted := func(job *batchv1.Job) *batchv1.Job {
		job.DeletionTimestamp = new(ago(minutes))
		return job
	}
	untrue := with(batchv1.JobComplete, batchv1.JobFailed, batchv1.JobComplete)
	untrue.Status.Conditions[0].Status = v1.ConditionFalse
	compareAll(t, map[string]*batchv1.Job{
		"empty":             with(),
		"complete":          with(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete),
		"failed":            with(batchv1.JobFailureTarget, batchv1.JobFailed),
		"complete, deleted": deleted(with(batchv1.JobComplete)),
		"failed, deleted":   deleted(with(batchv1.JobFailed)),
		"deleted":           deleted(with(batchv1.JobSuspended)),
		"suspended":         with(batchv1.JobSuccessCriteriaMet, batchv1.JobSuspended),
		"failure target":    with(batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget),
		"success criteria":  with(batchv1.JobSuccessCriteriaMet),
		"untrue conditions": untrue,
		"completions":       {ObjectMeta: meta(), Spec: batchv1.JobSpec{Completions: new(int32(5)), Parallelism: new(int32(2))}, Status: batchv1.JobStatus{Succeeded: 3}},
		"parallelism":       {ObjectMeta: meta(), Spec: batchv1.JobSpec{Parallelism: new(int32(3))}, Status: batchv1.JobStatus{Succeeded: 1}},
		"parallelism 1":     {ObjectMeta: meta(), Spec: batchv1.JobSpec{Parallelism: new(int32(1))}},
		"running":           {ObjectMeta: meta(), Status: batchv1.JobStatus{StartTime: new(ago(minutes))}},
		"took":              {ObjectMeta: meta(), Status: batchv1.JobStatus{StartTime: new(ago(hours)), CompletionTime: new(ago(minutes))}},
		"wide":              {ObjectMeta: meta(), Spec: batchv1.JobSpec{Template: template(), Selector: selector()}},
	})
	compareAll(t, map[string]*batchv1.CronJob{
		"empty": {ObjectMeta: meta()},
		"full": {
			ObjectMeta: meta(),
			Spec: batchv1.CronJobSpec{
				Schedule: "* * * * *", TimeZone: new("Etc/UTC"), Suspend: new(true),
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template(), Selector: selector()}},
			},
			Status: batchv1.CronJobStatus{Active: make([]v1.ObjectReference, 2), LastScheduleTime: new(ago(minutes))},
		},
		"not suspended":  {ObjectMeta: meta(), Spec: batchv1.CronJobSpec{Suspend: new(false)}},
		"zero scheduled": {ObjectMeta: meta(), Status: batchv1.CronJobStatus{LastScheduleTime: new(metav1.Time{})}},
	})
}
