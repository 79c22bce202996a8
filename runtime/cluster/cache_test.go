package cluster

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func at(name, uid, version string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

// TestCache: an older state never replaces a newer one, and the last state of a pod is kept.
func TestCache(t *testing.T) {
	t.Parallel()
	c := newPodCache(func(*v1.Pod) {})
	version := func(name string) string {
		pod, last := c.get(key(name))
		switch {
		case pod != nil:
			return pod.ResourceVersion
		case last != nil:
			return "gone at " + last.ResourceVersion
		}
		return ""
	}
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { c.put(at("a", "1", "9")) }, "9"},
		{func() { c.put(at("a", "1", "12")) }, "12"},
		{func() { c.put(at("a", "1", "10")) }, "12"},
		{func() { c.remove(at("a", "1", "14")) }, "gone at 14"},
		{func() { c.put(at("a", "1", "13")) }, "gone at 14"},
		{func() { c.put(at("a", "2", "20")) }, "20"},
		{func() { c.remove(at("a", "1", "14")) }, "20"},  // another one of that name
		{func() { c.replace("", "19", nil) }, "20"},      // from before it was created
		{func() { c.replace("other", "30", nil) }, "20"}, // of another namespace
		{func() { c.replace("ns", "30", []*v1.Pod{at("b", "3", "25")}) }, "gone at 20"},
		{func() { c.forget(key("a")) }, ""},
	} {
		if step.do(); version("a") != step.want {
			t.Errorf("step %d: %q, want %q", i, version("a"), step.want)
		}
	}
	if version("b") != "25" || len(c.all()) != 1 {
		t.Errorf("b: %q, %d pods", version("b"), len(c.all()))
	}
}

// TestSubscribe: changes wake those who wait for them, and no others.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	c := newPodCache(func(*v1.Pod) {})
	first, cancel := c.subscribe(key("a"))
	second, cancelSecond := c.subscribe(key("a"))
	other, cancelOther := c.subscribe(key("b"))
	defer cancelOther()
	c.put(at("a", "1", "1"))
	c.put(at("a", "1", "2")) // values coalesce
	cancel()
	c.remove(at("a", "1", "3"))
	if n := len(first); n != 1 {
		t.Errorf("%d values", n)
	}
	if _, open := <-first; !open {
		t.Error("no value before the end")
	}
	if _, open := <-first; open {
		t.Error("not closed")
	}
	if len(second) != 1 || len(other) != 0 {
		t.Errorf("%d and %d values", len(second), len(other))
	}
	cancelSecond()
}
