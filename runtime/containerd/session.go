package containerd

import (
	"context"
	"errors"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/runonce/runonce/runtime/containerd/errs"
	"github.com/runonce/runonce/runtime/containerd/link"
)

// do calls op with the current session. When the process that serves it has gone, the
// session is replaced and op is repeated, which it must bear: as often as processes that
// serve for a moment take turns.
func (e *Engine) do(ctx context.Context, op func(context.Context, *link.Session) error) error {
	s, err := e.session()
	if err != nil {
		return err
	}
	ctx = namespaces.WithNamespace(ctx, e.o.Namespace)
	for {
		err = errs.NotFound(errs.Native(op(ctx, s)))
		if err == nil || ctx.Err() != nil {
			return err
		}
		// When someone else replaced the session meanwhile, its closing may be the error.
		next, serr := e.session()
		if serr == nil && next == s && e.lost(s, err) {
			next, serr = e.replace(ctx, s)
		}
		if serr != nil {
			return serr
		}
		if next == s {
			return err
		}
		s = next
	}
}

// lost reports whether the error may mean that the process that served s is gone.
func (e *Engine) lost(s *link.Session, err error) bool {
	return e.o.Address == "" && s.Server == nil && errdefs.IsUnavailable(err)
}

func (e *Engine) session() (*link.Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return nil, errors.New("using the container engine: it is closed")
	}
	return e.current, nil
}

// replace returns the session after the lost one, made by this call or by another.
func (e *Engine) replace(ctx context.Context, lost *link.Session) (*link.Session, error) {
	e.opening.Lock()
	defer e.opening.Unlock()
	s, err := e.session()
	if err != nil || s != lost {
		return s, err
	}
	e.o.Log.Info("the process that served containerd is gone, taking over")
	if s, err = link.Connect(ctx, e.o.link()); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return nil, errors.Join(errors.New("using the container engine: it is closed"), s.Close())
	}
	e.current = s
	// Its calls have failed already.
	_ = lost.Close()
	return s, nil
}
