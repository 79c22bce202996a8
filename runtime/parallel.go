package runtime

import (
	"context"
	"errors"
	"sync"
)

// each runs f for every element at once and returns all errors.
func each[T any](elements []T, f func(T) error) error {
	var wg sync.WaitGroup
	errs := make([]error, len(elements))
	for i, e := range elements {
		wg.Go(func() { errs[i] = f(e) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// enter waits for a place in the channel and returns how to leave it.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
