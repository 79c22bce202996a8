package cmd_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// accepting is a "watch" that accepts pods, and a client of it.
type accepting struct {
	typed.PodInterface
	dir string // of the manifests of accepted pods
	end func(codes ...int)
}

// accept starts one on the machine.
func accept(t *testing.T, m *memory) accepting {
	t.Helper()
	dir, err := os.MkdirTemp("", "ro-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	interrupt, ended := background(t, m, "watch", "--settle", "0", "--node", nodeFile(), "--serve", "unix:"+socket, "--accept")
	transport := viaSocket(socket).Transport
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://node", QPS: -1}, &http.Client{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err = fetch(t.Context(), viaSocket(socket), "http://node/healthz"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	return accepting{client.CoreV1().Pods("default"), filepath.Join(m.root, "accepted"), func(codes ...int) {
		interrupt()
		if got := <-ended; !slices.Contains(codes, got.code) {
			t.Errorf("exit code %d\n%s", got.code, got.stderr)
		}
	}}
}

// files returns the manifests of accepted pods.
func (a accepting) files(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// await waits until the pod is as it should be.
func (a accepting) await(t *testing.T, name string, is func(*v1.Pod) bool) *v1.Pod {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		pod, err := a.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && is(pod) {
			return pod
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %+v", err, pod.Status)
		}
	}
}

func newPod(name string, args ...string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "main", Image: "localhost/box:1", Args: args}},
	}}
}

// TestWatchAccepts: pods that a client creates are admitted and run, once, and are refused as an API server refuses them.
func TestWatchAccepts(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	a := accept(t, m)
	created, err := a.Create(t.Context(), newPod("fails", "exit", "3"), metav1.CreateOptions{})
	if err != nil || created.UID == "" || created.CreationTimestamp.IsZero() || created.Spec.NodeName == "" {
		t.Fatalf("%v: %+v", err, created)
	}
	failed := a.await(t, "fails", func(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodFailed })
	large := newPod("large", "trap")
	large.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
	invalid := newPod("invalid", "trap")
	invalid.Spec.Containers[0].Image = ""
	elsewhere := newPod("elsewhere", "trap")
	elsewhere.Namespace = "other"
	for name, tt := range map[string]struct {
		pod  *v1.Pod
		is   func(error) bool
		want string
	}{
		"exists":    {newPod("fails", "trap"), apierrors.IsAlreadyExists, `pods "fails" already exists`},
		"no room":   {large, apierrors.IsForbidden, `pods "large" is forbidden: OutOfcpu: Node didn't have enough resource: cpu`},
		"invalid":   {invalid, apierrors.IsInvalid, `Pod "invalid" is invalid: spec.containers[0].image: Required value`},
		"no name":   {newPod("", "trap"), apierrors.IsInvalid, `metadata.name: Required value: name or generateName is required`},
		"elsewhere": {elsewhere, apierrors.IsBadRequest, "the namespace of the provided object does not match"},
		"long":      {newPod(strings.Repeat("x", 253), "trap"), apierrors.IsInvalid, "metadata.name"},
	} {
		if _, err := a.Create(t.Context(), tt.pod, metav1.CreateOptions{}); !tt.is(err) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	if _, err := a.Create(t.Context(), newPod("dry", "trap"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	generated := newPod("", "trap")
	generated.GenerateName = "web-"
	web, err := a.Create(t.Context(), generated, metav1.CreateOptions{})
	if err != nil || !strings.HasPrefix(web.Name, "web-") {
		t.Fatalf("%v: %+v", err, web)
	}
	running := a.await(t, web.Name, func(pod *v1.Pod) bool { return pod.Status.Phase == v1.PodRunning })
	if got, want := a.files(t), "default_fails.json default_"+web.Name+".json"; got != want {
		t.Errorf("kept: %s, want %s", got, want)
	}
	if now := a.await(t, "fails", func(*v1.Pod) bool { return true }); now.UID != failed.UID || now.Status.Phase != v1.PodFailed ||
		!now.Status.StartTime.Equal(failed.Status.StartTime) || !now.CreationTimestamp.Equal(&created.CreationTimestamp) {
		t.Errorf("run again: %+v\n%+v", now, failed)
	}

	// Another process goes on with them.
	a.end(1)
	a = accept(t, m)
	if now := a.await(t, web.Name, func(*v1.Pod) bool { return true }); now.UID != running.UID || now.Status.Phase != v1.PodRunning {
		t.Errorf("after a restart: %+v", now.Status)
	}
	if now := a.await(t, "fails", func(*v1.Pod) bool { return true }); now.Status.Phase != v1.PodFailed || !now.Status.StartTime.Equal(failed.Status.StartTime) {
		t.Errorf("after a restart: %+v", now.Status)
	}
	for _, name := range []string{"fails", web.Name} {
		if err := a.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, err := a.List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not deleted: %v, %d pods", err, len(list.Items))
		}
	}
	if got := a.files(t); got != "" {
		t.Errorf("kept: %s", got)
	}
	a.end(0, 1, 143) // it may not know yet that they were deleted
}
