package server

import (
	"errors"
	"fmt"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	namespacesapi "github.com/containerd/containerd/api/services/namespaces/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/introspection"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/services"
	"github.com/containerd/plugin"
)

// newClient makes a client whose calls are function calls into the plugins.
func newClient(set *plugin.Set) (*client.Client, error) {
	f := &finder{set: set}
	opts := []client.ServicesOpt{
		client.WithEventService(collect[client.EventService](f, plugins.EventPlugin, "exchange")),
		client.WithLeasesService(collect[leases.Manager](f, plugins.LeasePlugin, "manager")),
		client.WithContentStore(collect[content.Store](f, plugins.ServicePlugin, services.ContentService)),
		client.WithImageClient(collect[imagesapi.ImagesClient](f, plugins.ServicePlugin, services.ImagesService)),
		client.WithSnapshotters(collect[map[string]snapshots.Snapshotter](f, plugins.ServicePlugin, services.SnapshotsService)),
		client.WithContainerClient(collect[containersapi.ContainersClient](f, plugins.ServicePlugin, services.ContainersService)),
		client.WithTaskClient(collect[tasksapi.TasksClient](f, plugins.ServicePlugin, services.TasksService)),
		client.WithDiffClient(collect[diffapi.DiffClient](f, plugins.ServicePlugin, services.DiffService)),
		client.WithNamespaceClient(collect[namespacesapi.NamespacesClient](f, plugins.ServicePlugin, services.NamespacesService)),
		client.WithIntrospectionService(collect[introspection.Service](f, plugins.ServicePlugin, services.IntrospectionService)),
	}
	if err := errors.Join(f.errs...); err != nil {
		return nil, err
	}
	c, err := client.New("", client.WithServices(opts...))
	if err != nil {
		return nil, fmt.Errorf("connecting to the embedded containerd: %w", err)
	}
	return c, nil
}

// finder finds plugins and collects the errors.
type finder struct {
	set  *plugin.Set
	errs []error
}

func collect[T any](f *finder, t plugin.Type, id string) T {
	v, err := find[T](f.set, t, id)
	if err != nil {
		f.errs = append(f.errs, err)
	}
	return v
}

// find returns the instance of a plugin.
func find[T any](set *plugin.Set, t plugin.Type, id string) (T, error) {
	var none T
	p := set.Get(t, id)
	if p == nil {
		return none, fmt.Errorf("finding containerd's %s.%s: it is missing", t, id)
	}
	instance, err := p.Instance()
	if err != nil {
		return none, fmt.Errorf("finding containerd's %s.%s: %w", t, id, err)
	}
	v, ok := instance.(T)
	if !ok {
		return none, fmt.Errorf("finding containerd's %s.%s: it is a %T", t, id, instance)
	}
	return v, nil
}
