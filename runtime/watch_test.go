package runtime_test

import (
	"context"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
)

func TestChangesWakeTheRightWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := n.pods(t.Context(), t)
		pod, other := testPod(v1.RestartPolicyNever, "sleep 1s"), testPod(v1.RestartPolicyNever, "sleep")
		other.UID = "uid-2"
		ctx, cancel := context.WithCancel(t.Context())
		mine, err := p.Changes(ctx, pod)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := p.Changes(ctx, other)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Sync(ctx, pod); err != nil {
			t.Fatal(err)
		}
		<-mine // started
		<-mine // exited
		select {
		case <-theirs:
			t.Error("another pod's change woke the waiter")
		default:
		}
		cancel()
		if _, open := <-mine; open {
			t.Error("the channel is open after the context is done")
		}
	})
}
