package runtime_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
	"github.com/runonce/runonce/runtime/logs"
	"github.com/runonce/runonce/runtime/record"
)

// logFiles returns the logs of the pod's first container, with what was printed.
func (n *node) logFiles(t *testing.T, pod *v1.Pod) map[string]string {
	t.Helper()
	dir := filepath.Join(n.root, "log", pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), "c0")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(data), " F ")
		files[e.Name()] = strings.TrimSpace(text)
	}
	return files
}

func wantLogs(t *testing.T, n *node, pod *v1.Pod, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, n.logFiles(t, pod)); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}

// TestLogOfEachInstance: whatever ended an instance, the next one has a log of its own, and each
// log is found by the ID in the status.
func TestLogOfEachInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyOnFailure, "flaky /f 3")
		sync := func() v1.PodStatus {
			t.Helper()
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			st, err := p.Status(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		path := func(id, want string) {
			t.Helper()
			if got := p.LogPath(pod, id); filepath.Base(got) != want {
				t.Errorf("the log of %q is %q, want %q", id, got, want)
			}
		}
		sync()
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		path("containerd://any", ".")
		sync()
		time.Sleep(time.Minute) // longer than the back-off
		cs := sync().ContainerStatuses[0]
		wantLogs(t, n, pod, map[string]string{"0.log": "flaky: call 1 of 3 fails", "1.log": "flaky: call 2 of 3 fails", "2.log": ""})
		path(cs.ContainerID, "2.log")
		path(cs.LastTerminationState.Terminated.ContainerID, "1.log")
		// Another process removes the pod: this one has seen its logs.
		if err := n.pods(t.Context(), t).Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Status(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		path(cs.ContainerID, "2.log")
	})
}

// killed is an engine whose process is killed after it has created a container.
type killed struct {
	*enginetest.Engine
	created engine.Container
}

func (k *killed) Containers(ctx context.Context, uid string) ([]engine.Container, error) {
	all, err := k.Engine.Containers(ctx, uid)
	if k.created.ID != "" && len(all) == 0 {
		all = append(all, k.created)
	}
	return all, err
}

// TestLogOfUnstartedInstance: an instance that was created but never ran leaves its log to the
// next process, or none if it is removed, and one that could not be started leaves none.
func TestLogOfUnstartedInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		pod := testPod(v1.RestartPolicyNever, "exit 0 done")
		program := n.engine.Program
		sync := func(p *runtime.Pods, fails bool) {
			t.Helper()
			if err := p.Sync(t.Context(), pod); (err != nil) != fails {
				t.Fatal(err)
			}
		}
		var path string
		n.engine.Program = func(c engine.ContainerConfig) enginetest.Behavior {
			path = c.LogPath
			return enginetest.Behavior{Err: errors.New("no more processes")}
		}
		sync(n.pods(t.Context(), t), true)
		wantLogs(t, n, pod, map[string]string{})

		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		n.engine.Program = program
		k := &killed{n.engine, engine.Container{
			ID: engine.ContainerID(string(pod.UID), "c0", time.Now(), 0), PodUID: string(pod.UID), Name: "c0", State: engine.StateCreated, LogPath: path,
		}}
		p := n.podsOn(t.Context(), t, k)
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		wantLogs(t, n, pod, map[string]string{})
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		sync(p, false)
		wantLogs(t, n, pod, map[string]string{"0.log": "done"})
		// What has text in it is not used again.
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		sync(p, false)
		wantLogs(t, n, pod, map[string]string{"0.log": "done", "1.log": "done"})
	})
}

// TestLogOfFailedStart: an instance that can never be started has an empty log.
func TestLogOfFailedStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep")
		pod.Spec.Containers[0].Command = []string{"/bin/none"}
		if err := p.Sync(t.Context(), pod); !failure.IsPermanent(err) {
			t.Fatal(err)
		}
		st, err := p.Status(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.LogPath(pod, st.ContainerStatuses[0].ContainerID); filepath.Base(got) != "0.log" {
			t.Errorf("its log is %q", got)
		}
		wantLogs(t, n, pod, map[string]string{"0.log": ""})
	})
}

// TestFollowLog: following ends when no instance may write to the log any more, or at its end. Nothing here waits for
// the container: fake time stands still while a directory is watched.
func TestFollowLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyNever, "sleep 1s")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		path, err := p.Log(t.Context(), pod, "c0", false)
		if err != nil {
			t.Fatal(err)
		}
		later := filepath.Join(filepath.Dir(path), "7.log")
		if err := os.WriteFile(later, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		end := make(chan struct{})
		close(end)
		follow := func(f runtime.FollowedLog) {
			t.Helper()
			if err := p.FollowLog(t.Context(), pod, f, logs.Sinks{}, logs.Options{}); err != nil {
				t.Error(err)
			}
		}
		follow(runtime.FollowedLog{Path: later}) // of no instance
		follow(runtime.FollowedLog{Path: path, End: end})
		follow(runtime.FollowedLog{Path: later, New: true, End: end})
		time.Sleep(2 * time.Second)
		follow(runtime.FollowedLog{Path: path})
		follow(runtime.FollowedLog{Path: path, New: true})
	})
}

// TestRemoveLogs: the logs of pods that exist stay, and those of a pod that another process is
// about to start.
func TestRemoveLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pods := map[string]*v1.Pod{}
		for _, name := range []string{"runs", "gone", "older", "locked"} {
			pod := testPod(v1.RestartPolicyNever, "exit 0 "+name)
			pod.Name, pod.UID = name, types.UID(name)
			pods[name] = pod
			err := p.Sync(t.Context(), pod)
			if err == nil && name != "runs" {
				err = p.Stop(t.Context(), pod)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(names ...string) {
			t.Helper()
			var got []string
			for _, name := range []string{"gone", "locked", "older", "runs"} {
				if len(n.logFiles(t, pods[name])) > 0 {
					got = append(got, name)
				}
			}
			if diff := cmp.Diff(names, got); diff != "" {
				t.Errorf("logs (-want +got):\n%s", diff)
			}
		}
		lock, err := record.Open(n.root, n.root).Lock(t.Context(), "locked")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.RemoveLogs([]*v1.Pod{pods["gone"], pods["runs"]}, false, ""); err != nil {
			t.Error(err)
		}
		want("locked", "older", "runs")
		if err := p.RemoveLogs(nil, true, "elsewhere"); err != nil {
			t.Error(err)
		}
		want("locked", "older", "runs")
		if err := p.RemoveLogs(nil, true, ""); err != nil {
			t.Error(err)
		}
		want("locked", "runs")
		lock.Release()
		time.Sleep(29 * 24 * time.Hour)
		if err := p.ExpireLogs(); err != nil {
			t.Error(err)
		}
		want("locked", "runs")
		time.Sleep(2 * 24 * time.Hour)
		if err := p.ExpireLogs(); err != nil {
			t.Error(err)
		}
		want("runs")
	})
}

// TestEvictionByLogs: the logs of earlier runs do not count towards the pod's limit on storage.
func TestEvictionByLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("64Ki")}
		reason := func() string {
			t.Helper()
			if err := p.Sync(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			st, err := p.Status(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			return st.Reason
		}
		flood := func(file string) {
			t.Helper()
			path := filepath.Join(n.root, "log", "default_web_uid-1", "c0", file)
			if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := reason(); got != "" {
			t.Fatal(got)
		}
		if err := p.Stop(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		flood("0.log")
		if got := reason(); got != "" {
			t.Errorf("by the log of an earlier run: %s", got)
		}
		flood("1.log")
		if got := reason(); got != "Evicted" {
			t.Errorf("by its own log: %q", got)
		}
	})
}
