package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runtime/record"
)

// services notes at each update which pods are ready by their records, and which have an address.
type services struct {
	records *record.Store
	mu      sync.Mutex
	seen    []string
	err     error
}

func (s *services) Environment(*v1.Pod) ([]v1.EnvVar, error) {
	return []v1.EnvVar{{Name: "DB_SERVICE_HOST", Value: "10.1.0.7"}}, nil
}

func (s *services) WithNames(_ *v1.Pod, file []byte) ([]byte, error) {
	return append(file, "10.1.0.7\tdb\n"...), nil
}

func (s *services) Update(context.Context, *v1.Pod) error {
	all, err := s.records.List()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := ""
	for _, r := range all {
		if r.Sandbox != nil {
			now += fmt.Sprintf("%s ready=%t ", r.Pod.Name, r.Ready && r.Failed == nil)
		}
	}
	s.seen = append(s.seen, now)
	return errors.Join(err, s.err)
}

func (s *services) Keep(context.Context) error { return nil }

// TestPublish: others reach a pod once it is published as ready, and no longer when it is told to stop.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := &services{records: n.records}
		n.services, n.sandboxes.Records = s, n.records
		ctx := t.Context()
		p, pod := n.pods(ctx, t), testPod(v1.RestartPolicyAlways, "sleep")
		publish := func() {
			t.Helper()
			st, err := p.Status(ctx, pod)
			if err == nil {
				err = p.Publish(ctx, pod, st)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		publish()
		publish() // nothing has changed
		if err := p.Stop(ctx, pod); err != nil {
			t.Fatal(err)
		}
		want := []string{"web ready=true ", "web ready=false ", ""}
		if !slices.Equal(s.seen, want) {
			t.Errorf("the updates saw %q, want %q", s.seen, want)
		}
	})
}

// TestPublishAgain: what could not be published is tried again.
func TestPublishAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := &services{records: n.records, err: errors.New("no kernel")}
		n.services, n.sandboxes.Records = s, n.records
		p, pod := n.pods(t.Context(), t), testPod(v1.RestartPolicyAlways, "sleep")
		if err := p.Sync(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		st, err := p.Status(t.Context(), pod)
		if err != nil || !podspec.IsReady(st) {
			t.Fatalf("%v, %v", st, err)
		}
		if err := p.Publish(t.Context(), pod, st); err == nil {
			t.Error("no error")
		}
		s.err = nil
		if err := p.Publish(t.Context(), pod, st); err != nil || len(s.seen) != 2 {
			t.Errorf("%v after %d updates", err, len(s.seen))
		}
	})
}

// TestPublishAdopted: a pod that was ready for an earlier process stays so until this one has probed it.
func TestPublishAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := &services{records: n.records}
		n.services, n.sandboxes.Records = s, n.records
		pod := testPod(v1.RestartPolicyAlways, "sleep")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("exit", "0")
		for range 2 {
			ctx, end := context.WithCancel(t.Context())
			p := n.pods(ctx, t)
			for range 3 {
				st, err := p.Status(ctx, pod)
				if err == nil {
					err = p.Publish(ctx, pod, st)
				}
				if err == nil {
					err = p.Sync(ctx, pod)
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
			}
			end()
			synctest.Wait()
		}
		want := []string{"", "web ready=true ", "web ready=true "}
		if !slices.Equal(s.seen, want) {
			t.Errorf("the updates saw %q, want %q", s.seen, want)
		}
	})
}
