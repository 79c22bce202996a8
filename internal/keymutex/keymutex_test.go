package keymutex

import (
	"sync"
	"testing"
)

func TestMutex(t *testing.T) {
	t.Parallel()
	var m Mutex
	// Another key is free while one is held.
	unlock := m.Lock("a")
	m.Lock("b")()
	unlock()

	counts := map[string]*int{"a": new(int), "b": new(int)}
	var wg sync.WaitGroup
	for key, n := range counts {
		for range 100 {
			wg.Go(func() {
				defer m.Lock(key)()
				*n++
			})
		}
	}
	wg.Wait()
	if *counts["a"] != 100 || *counts["b"] != 100 {
		t.Errorf("%d, %d", *counts["a"], *counts["b"])
	}
	if len(m.held) != 0 {
		t.Errorf("%d keys are kept", len(m.held))
	}
}
