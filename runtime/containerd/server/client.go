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
	f := finder{set: set}
	service := func(id string) any { return f.find(plugins.ServicePlugin, id) }
	opts := []client.ServicesOpt{
		client.WithEventService(as[client.EventService](&f, f.find(plugins.EventPlugin, "exchange"))),
		client.WithLeasesService(as[leases.Manager](&f, f.find(plugins.LeasePlugin, "manager"))),
		client.WithContentStore(as[content.Store](&f, service(services.ContentService))),
		client.WithImageClient(as[imagesapi.ImagesClient](&f, service(services.ImagesService))),
		client.WithSnapshotters(as[map[string]snapshots.Snapshotter](&f, service(services.SnapshotsService))),
		client.WithContainerClient(as[containersapi.ContainersClient](&f, service(services.ContainersService))),
		client.WithTaskClient(as[tasksapi.TasksClient](&f, service(services.TasksService))),
		client.WithDiffClient(as[diffapi.DiffClient](&f, service(services.DiffService))),
		client.WithNamespaceClient(as[namespacesapi.NamespacesClient](&f, service(services.NamespacesService))),
		client.WithIntrospectionService(as[introspection.Service](&f, service(services.IntrospectionService))),
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

// finder looks plugins up and collects the errors.
type finder struct {
	set  *plugin.Set
	errs []error
}

func (f *finder) find(t plugin.Type, id string) any {
	p := f.set.Get(t, id)
	if p == nil {
		f.errs = append(f.errs, fmt.Errorf("embedding containerd: plugin %s.%s is missing", t, id))
		return nil
	}
	instance, err := p.Instance()
	if err != nil {
		f.errs = append(f.errs, fmt.Errorf("embedding containerd: plugin %s.%s: %w", t, id, err))
		return nil
	}
	return instance
}

// as converts a plugin to the interface that the client takes.
func as[T any](f *finder, instance any) T {
	v, ok := instance.(T)
	if !ok && instance != nil {
		f.errs = append(f.errs, fmt.Errorf("embedding containerd: a plugin is a %T", instance))
	}
	return v
}
