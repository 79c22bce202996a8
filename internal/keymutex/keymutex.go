// Package keymutex has a mutex for each of any number of keys.
package keymutex

import (
	"sync"
)

// Mutex is a mutex for each key. The zero value is ready for use.
type Mutex struct {
	mu   sync.Mutex
	held map[string]*refMutex
}

type refMutex struct {
	sync.Mutex
	refs int
}

// Lock waits for the key and returns the function that unlocks it.
func (k *Mutex) Lock(key string) func() {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*refMutex{}
	}
	m := k.held[key]
	if m == nil {
		m = &refMutex{}
		k.held[key] = m
	}
	m.refs++
	k.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if m.refs--; m.refs == 0 {
			delete(k.held, key)
		}
	}
}
