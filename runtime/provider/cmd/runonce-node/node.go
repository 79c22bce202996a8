package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	events "k8s.io/client-go/tools/record"

	"github.com/runonce/runonce/internal/podevent"
	"github.com/runonce/runonce/internal/podspec"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime"
	"github.com/runonce/runonce/runtime/provider"
	"github.com/runonce/runonce/runtime/record"
	"github.com/runonce/runonce/runtime/serve/kubelet"
)

const (
	// workers is how many pods are created, updated or deleted at once. None of it takes long.
	workers = 10
	// queries and burst limit the requests to the API server per second, as the kubelet's.
	queries = 50
	burst   = 100
)

// instance is a node that is being run.
type instance struct {
	o      options
	log    *slog.Logger
	client kubernetes.Interface
	events events.EventBroadcaster
	engine backend.Engine
	pods   *runtime.Pods
	// own has the pods of this node, and all has the other objects of the cluster.
	own, all informers.SharedInformerFactory
}

// run is the node, until ctx is done. Its pods keep running.
func run(ctx context.Context, o options, log *slog.Logger) error {
	client, err := connect(o)
	if err != nil {
		return err
	}
	port, err := listen(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = port.Close() }()
	o.backend.Log = log
	engine, err := backend.Open(ctx, o.backend)
	if err != nil {
		return err
	}
	i := &instance{
		o: o, log: log, client: client, engine: engine, events: events.NewBroadcaster(events.WithContext(ctx)),
		own: informers.NewSharedInformerFactoryWithOptions(client, 0, nodeutil.PodInformerFilter(o.name)),
		all: informers.NewSharedInformerFactory(client, 0),
	}
	defer i.close()
	return i.run(ctx, port)
}

// connect returns a client of the API server.
func connect(o options) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("looking for the API server: %w", err)
	}
	config.QPS, config.Burst = queries, burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return client, nil
}

func (i *instance) close() {
	i.events.Shutdown()
	if i.pods != nil {
		i.pods.Wait()
	}
	if err := i.engine.Close(); err != nil {
		i.log.Warn("could not close the engine", "error", err)
	}
}

// run registers the node, runs its pods and serves the port.
func (i *instance) run(ctx context.Context, port net.Listener) error {
	machine, err := provider.NewNode(func() (*v1.Node, error) { return i.o.detect(i.o) }, provider.NodeOptions{
		Addresses: []string{i.o.ip}, Port: int32(i.o.port), Version: kubernetesVersion(), Runtime: "containerd://" + strings.TrimPrefix(moduleVersion(containerdModule), "v"),
	}, i.log)
	if err != nil {
		return err
	}
	i.events.StartRecordingToSink(&corev1.EventSinkImpl{Interface: i.client.CoreV1().Events("")})
	recorder := i.events.NewRecorder(scheme.Scheme, v1.EventSource{Component: "runonce", Host: i.o.name})
	podController, p, err := i.open(ctx, machine.Object(), recorder)
	if err != nil {
		return err
	}
	nodeController, err := node.NewNodeController(machine, machine.Object(), i.client.CoreV1().Nodes(),
		node.WithNodeEnableLeaseV1(nodeutil.NodeLeaseV1Client(i.client), node.DefaultLeaseDuration))
	if err != nil {
		return fmt.Errorf("setting up the node: %w", err)
	}
	assigned := i.own.Core().V1().Pods().Lister()
	handler, err := guarded(i.o, i.client, kubelet.Handler(kubelet.Options{
		Node: i.o.name, Started: time.Now(), Pods: p, Runtime: i.pods, Log: i.log,
		Assigned: func(context.Context) ([]*v1.Pod, error) { return assigned.List(labels.Everything()) },
	}))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return serve(ctx, port, handler) })
	g.Go(func() error { return podController.Run(ctx, workers) })
	g.Go(func() error {
		// Registered before, the node would get pods too early.
		select {
		case <-podController.Ready():
			return nodeController.Run(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

// open starts the runtime, with the pods of earlier processes, and returns what drives it.
func (i *instance) open(ctx context.Context, machine *v1.Node, recorder events.EventRecorder) (*node.PodController, *provider.Provider, error) {
	own, all := i.own.Core().V1(), i.all.Core().V1()
	config := node.PodControllerConfig{
		PodClient: i.client.CoreV1(), EventRecorder: recorder, PodInformer: own.Pods(),
		ConfigMapInformer: all.ConfigMaps(), SecretInformer: all.Secrets(), ServiceInformer: all.Services(),
	}
	own.Pods().Informer()
	all.Services().Informer()
	objects := provider.ClusterObjects(i.client, all)
	for _, f := range []informers.SharedInformerFactory{i.own, i.all} {
		f.Start(ctx.Done())
		f.WaitForCacheSync(ctx.Done())
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	var err error
	i.pods, err = i.engine.Pods(ctx, machine, runtime.Options{
		Records: record.Open(i.o.backend.Root, i.o.backend.State), LogDir: i.o.backend.LogDir, Log: i.log, Objects: objects,
		Event: func(pod *v1.Pod, e podevent.Event) {
			recorder.Event(reference(pod, e.Container), e.Type, e.Reason, e.Message)
		},
	})
	if err == nil {
		err = i.importImages(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := provider.New(ctx, i.pods, i.o.name, i.log)
	if err != nil {
		return nil, nil, err
	}
	config.Provider = p
	controller, err := node.NewPodController(config)
	if err != nil {
		return nil, nil, fmt.Errorf("setting up the pods of the node: %w", err)
	}
	return controller, p, nil
}

// reference is what an event is about: the pod, or one of its containers (pkg/kubelet/container GenerateContainerRef).
func reference(pod *v1.Pod, container string) *v1.ObjectReference {
	ref := &v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}
	switch def := podspec.Container(pod, container); {
	case def == nil:
	case slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == container }):
		ref.FieldPath = fmt.Sprintf("spec.initContainers{%s}", container)
	case podspec.IsEphemeral(pod, container):
		ref.FieldPath = fmt.Sprintf("spec.ephemeralContainers{%s}", container)
	default:
		ref.FieldPath = fmt.Sprintf("spec.containers{%s}", container)
	}
	return ref
}

// importImages imports the images of --images-dir.
func (i *instance) importImages(ctx context.Context) error {
	if i.o.imagesDir == "" {
		return nil
	}
	in, err := i.engine.Import(ctx, i.o.imagesDir, "")
	if err != nil {
		return fmt.Errorf("--images-dir: %w", err)
	}
	for _, bad := range in.Bad {
		i.log.Warn("could not import an image archive", "error", bad.Err)
	}
	i.pods.SetPreloaded(in.Refs)
	return nil
}

const (
	containerdModule = "github.com/containerd/containerd/v2"
	clientModule     = "k8s.io/client-go"
)

// kubernetesVersion returns the version of Kubernetes that the program is made for.
func kubernetesVersion() string { return "v1" + strings.TrimPrefix(moduleVersion(clientModule), "v0") }

// moduleVersion returns the version of a module that the program is built with.
func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "v0.0.0"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "v0.0.0"
}
