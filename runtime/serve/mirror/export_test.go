package mirror

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Patience is how long nothing happens before there is a look without a reason.
const Patience = patience

// Follow is Run on a machine whose kernel tells nothing of files.
func (m *Mirror) Follow(ctx context.Context) { m.follow(ctx, nil) }

// Mark says that a pod has changed, or that all may have.
func (m *Mirror) Mark(uid types.UID) { m.mark(uid) }
