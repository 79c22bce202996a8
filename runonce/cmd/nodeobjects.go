package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/manifests"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runtime/definitions"
	"github.com/runonce/runonce/runtime/service"
)

// define makes the Services and the other objects of the input those of the root, and removes those that --prune removes.
func (t *nodeTarget) define(ctx context.Context, set *manifests.Set) error {
	keeper := t.engine.Services()
	before, err := keeper.Services()
	if err != nil {
		return unusable(err)
	}
	pruned := t.planning.scope.pruned(set)
	services := set.Services()
	err = keeper.Define(ctx, services, func(svc *v1.Service) bool { return pruned != nil && pruned(svc) }, slices.Clone(set.Pods))
	switch invalid := (*service.InvalidError)(nil); {
	case errors.As(err, &invalid):
		return badInput(refusedService(set, invalid))
	case err != nil:
		return unusable(err)
	}
	for _, svc := range services {
		if !slices.ContainsFunc(before, func(o *v1.Service) bool { return podspec.NameOf(o) == podspec.NameOf(svc) }) {
			t.defined = append(t.defined, svc)
		}
	}
	t.keepDefinitions(set.Definitions(), pruned)
	return nil
}

// keepDefinitions keeps the objects for those who look at the pods, without those that are pruned, if any are (nil for none).
// Pods run without that.
func (t *nodeTarget) keepDefinitions(all []podspec.Object, pruned func(metav1.Object) bool) {
	added, err := definitions.Put(t.records.Root(), all)
	t.defined = append(t.defined, added...)
	if err == nil && pruned != nil {
		err = definitions.Remove(t.records.Root(), func(o podspec.Object) bool {
			return pruned(o) && !slices.ContainsFunc(all, func(own podspec.Object) bool { return definitions.Same(o, own) })
		})
	}
	if err != nil {
		t.log.Warn("clients will not see all objects of the input", "error", err)
	}
}

// refusedService returns the error about a Service, with its line if it is one of the input.
func refusedService(set *manifests.Set, e *service.InvalidError) error {
	for _, svc := range set.Services() {
		if podspec.NameOf(svc) == e.Service {
			return set.Refuse([]manifests.Fault{{Object: svc, Field: e.Field, Message: e.Message, Hint: e.Hint}})
		}
	}
	return e
}

// conclude removes the objects that this run has made, if it has removed its pods. Else it warns of those that have
// no pods that are ready: nobody will look at these any more.
func (t *nodeTarget) conclude(ctx context.Context) {
	if t.remove == runonce.RemoveNone || t.remove != runonce.RemoveAll && t.owner.Keeps() {
		t.warnUnready()
		return
	}
	if len(t.defined) == 0 {
		return
	}
	if _, err := t.dropObjects(ctx, t.isDefined); err != nil {
		t.log.Warn("could not remove the objects of the run", "error", err)
	}
}

func (t *nodeTarget) warnUnready() {
	unready, err := t.engine.Services().Unready()
	if err != nil {
		t.log.Warn("could not look for Services without endpoints", "error", err)
	}
	for _, name := range slices.Sorted(maps.Keys(unready)) {
		t.log.Warn("connections to this Service are refused, and will be until a run sees its pods ready: use --until ready, or watch",
			"service", name, "pod", podspec.FullName(unready[name]))
	}
}

// isDefined reports whether this run has made the object.
func (t *nodeTarget) isDefined(o podspec.Object) bool {
	return slices.ContainsFunc(t.defined, func(own podspec.Object) bool { return definitions.Same(o, own) })
}

// removeObjects removes the Services and the other objects that came from where the pods did, or all.
func (t *nodeTarget) removeObjects(ctx context.Context, o cleanup) error {
	chosen := func(of metav1.Object) bool {
		if o.namespace != "" && of.GetNamespace() != o.namespace {
			return false
		}
		return o.all || slices.ContainsFunc(o.origins, func(origin string) bool { return podspec.CameFrom(of, origin) })
	}
	removed, err := t.dropObjects(ctx, func(of podspec.Object) bool { return chosen(of) })
	if err != nil {
		return unusable(fmt.Errorf("removing Services: %w", err))
	}
	for _, name := range removed {
		if _, err := fmt.Fprintln(t.io.Stdout, "Service "+name, "removed"); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	return nil
}

// dropObjects removes the chosen Services and other objects, and returns the names of the Services.
func (t *nodeTarget) dropObjects(ctx context.Context, chosen func(podspec.Object) bool) (services []string, err error) {
	services, err = t.engine.Services().Remove(ctx, func(svc *v1.Service) bool { return chosen(svc) })
	return services, errors.Join(err, definitions.Remove(t.records.Root(), chosen))
}
