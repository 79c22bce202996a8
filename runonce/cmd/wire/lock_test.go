package wire

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func lockedPod() *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid"}} }

// TestHold: one at a time, also when the lock's file goes away in between.
func TestHold(t *testing.T) {
	t.Parallel()
	l := locks{filepath.Join(t.TempDir(), "locks")}
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			release, err := l.hold(t.Context(), lockedPod())
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n > most.Load() {
				most.Store(n)
			}
			inside.Add(-1)
			release(i%3 == 0)
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at once", most.Load())
	}
	release, err := l.hold(t.Context(), lockedPod())
	if err != nil {
		t.Fatal(err)
	}
	release(true)
	if left, err := os.ReadDir(l.dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestClaim: who does not wait gets the lock, or nothing.
func TestClaim(t *testing.T) {
	t.Parallel()
	l := locks{filepath.Join(t.TempDir(), "locks")}
	release, ok, err := l.claim(lockedPod())
	if err != nil || !ok {
		t.Fatalf("nobody has it: %v", err)
	}
	if _, ok, err := l.claim(lockedPod()); ok || err != nil {
		t.Errorf("somebody has it: %v", err)
	}
	release()
	unlock, err := l.hold(t.Context(), lockedPod())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := l.claim(lockedPod()); ok || err != nil {
		t.Errorf("somebody works on the pod: %v", err)
	}
	unlock(false)
	if _, ok, err := l.claim(lockedPod()); !ok || err != nil {
		t.Errorf("he has done: %v", err)
	}
}

// TestHoldCanceled: who waits for a lock can give up.
func TestHoldCanceled(t *testing.T) {
	t.Parallel()
	l := locks{t.TempDir()}
	release, err := l.hold(t.Context(), lockedPod())
	if err != nil {
		t.Fatal(err)
	}
	defer release(false)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.hold(ctx, lockedPod()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestResolvConf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stub, real string
		want             string
	}{
		{"plain", "nameserver 192.0.2.1\n", "x", resolvConf},
		{"stub of systemd-resolved", "# stub\nnameserver 127.0.0.53\noptions edns0\n", "nameserver 192.0.2.1\n", resolvedConf},
		{"stub without the other file", "nameserver 127.0.0.53\n", "", resolvConf},
		{"a second server", "nameserver 127.0.0.53\nnameserver 192.0.2.1\n", "x", resolvConf},
		{"none", "", "", resolvConf},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := resolvConfOf(func(path string) ([]byte, error) {
				text := map[string]string{resolvConf: c.stub, resolvedConf: c.real}[path]
				if text == "" {
					return nil, os.ErrNotExist
				}
				return []byte(text), nil
			})
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestCgroupParent(t *testing.T) {
	t.Parallel()
	if got := cgroupParent(defaultRoot); got != "/runonce" {
		t.Errorf("default root: %s", got)
	}
	if a, b := cgroupParent("/a"), cgroupParent("/b"); a == b || len(a) != len("/runonce-12345678") {
		t.Errorf("roots /a and /b: %s and %s", a, b)
	}
}
