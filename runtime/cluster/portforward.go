package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/runonce/runonce/internal/podspec"
)

// Forwarding connects to the ports of a pod, or of the pods that a Service stands for. It implements
// portforward.Destination of this program. The caller closes it.
type Forwarding struct {
	p       *Pods
	pod     *v1.Pod     // nil for a Service
	service *v1.Service // nil for a pod

	requests atomic.Int64
	mu       sync.Mutex
	conn     httpstream.Connection // nil before the first one
	to       *v1.Pod               // of conn
}

// ForwardToPod returns what connects to the ports of a pod.
func (p *Pods) ForwardToPod(pod *v1.Pod) *Forwarding { return &Forwarding{p: p, pod: pod} }

// ForwardToService returns what connects to the ports of a Service: those of one of its pods that are ready, until that
// is gone.
func (p *Pods) ForwardToService(ctx context.Context, name types.NamespacedName) (*Forwarding, error) {
	var svc v1.Service
	err := p.c.rest.Get().Namespace(name.Namespace).Resource("services").Name(name.Name).Do(ctx).Into(&svc)
	if err != nil {
		return nil, fmt.Errorf("getting Service %q: %s", name, words(err))
	}
	if !podspec.HasEndpoints(&svc) {
		return nil, podspec.NoSelector(&svc)
	}
	return &Forwarding{p: p, service: &svc}, nil
}

// Port returns the number of a port.
func (f *Forwarding) Port(remote intstr.IntOrString) (int32, error) {
	if f.service == nil {
		return podspec.PortOf(f.pod, remote)
	}
	port, err := podspec.TCPPort(f.service, remote)
	return port.Port, err
}

// Lost returns why the pod cannot be reached any more. A Service may get others.
func (f *Forwarding) Lost(ctx context.Context) error {
	if f.pod == nil {
		return nil
	}
	all, err := f.p.List(ctx)
	if err != nil {
		return err
	}
	for _, pod := range all {
		if podspec.NameOf(pod) == podspec.NameOf(f.pod) && pod.UID == f.pod.UID && !podspec.Ended(pod.Status.Phase) {
			return nil
		}
	}
	return fmt.Errorf("pod %q has ended", podspec.FullName(f.pod))
}

// Dial connects to a port.
func (f *Forwarding) Dial(ctx context.Context, port int32) (io.ReadWriteCloser, error) {
	conn, to, err := f.connection(ctx)
	if err != nil {
		return nil, err
	}
	if f.service != nil {
		p, err := podspec.TCPPort(f.service, intstr.FromInt32(port))
		if err != nil {
			return nil, err
		}
		target, ok := podspec.TargetPort(p, to)
		if !ok {
			return nil, fmt.Errorf("pod %q has no port %q", podspec.FullName(to), p.TargetPort.String())
		}
		port = target
	}
	return newForwarded(conn, port, f.requests.Add(1))
}

// connection returns the connection to the kubelet of a pod, which is made again if it has ended.
func (f *Forwarding) connection(ctx context.Context) (httpstream.Connection, *v1.Pod, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != nil {
		select {
		case <-f.conn.CloseChan():
		default:
			return f.conn, f.to, nil
		}
	}
	to := f.pod
	if f.service != nil {
		var err error
		if to, err = f.p.readyPod(ctx, f.service); err != nil {
			return nil, nil, err
		}
	}
	conn, err := f.p.dialPod(to)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to pod %q: %s", podspec.FullName(to), words(err))
	}
	f.conn, f.to = conn, to
	return conn, to, nil
}

// Close ends all connections.
func (f *Forwarding) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == nil {
		return nil
	}
	return f.conn.Close()
}

// readyPod returns one of the pods that the Service stands for.
func (p *Pods) readyPod(ctx context.Context, svc *v1.Service) (*v1.Pod, error) {
	var all v1.PodList
	err := p.c.rest.Get().Namespace(svc.Namespace).Resource("pods").Param("labelSelector", labels.SelectorFromSet(svc.Spec.Selector).String()).Do(ctx).Into(&all)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Service %q: %s", svc.Name, words(err))
	}
	for _, i := range rand.Perm(len(all.Items)) {
		pod := &all.Items[i]
		if pod.DeletionTimestamp == nil && (podspec.IsReady(pod.Status) || svc.Spec.PublishNotReadyAddresses && pod.Status.Phase == v1.PodRunning) {
			return pod, nil
		}
	}
	return nil, podspec.NoEndpoints(svc)
}

// dialPod connects to the kubelet of a pod. It prefers WebSockets, as exec does.
func (p *Pods) dialPod(pod *v1.Pod) (httpstream.Connection, error) {
	to := p.c.rest.Post().AbsPath(fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/portforward", pod.Namespace, pod.Name)).URL()
	transport, upgrader, err := spdy.RoundTripperFor(p.c.config)
	if err != nil {
		return nil, err
	}
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(to, p.c.config)
	if err != nil {
		return nil, err
	}
	dialer := portforward.NewFallbackDialerForStreaming(websocket, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, to), mayFallBack)
	conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("pod %q has ended", podspec.FullName(pod))
	}
	return conn, err
}

// forwarded is one connection to a port of a pod.
type forwarded struct {
	httpstream.Stream // the data

	conn   httpstream.Connection
	failed chan error // gets what the kubelet says in the end
	ended  func() error
}

func newForwarded(conn httpstream.Connection, port int32, request int64) (*forwarded, error) {
	headers := http.Header{}
	headers.Set(v1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(v1.PortForwardRequestIDHeader, strconv.FormatInt(request, 10))
	headers.Set(v1.StreamType, v1.StreamTypeError)
	failure, err := conn.CreateStream(headers)
	if err != nil {
		return nil, err
	}
	_ = failure.Close() // nothing is written to it
	headers.Set(v1.StreamType, v1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		conn.RemoveStreams(failure)
		return nil, errors.Join(err, failure.Reset())
	}
	f := &forwarded{Stream: data, conn: conn, failed: make(chan error, 1)}
	f.ended = sync.OnceValue(func() error { return <-f.failed })
	go func() {
		message, err := io.ReadAll(failure)
		if len(message) > 0 {
			err = errors.New(string(message))
		}
		conn.RemoveStreams(failure)
		f.failed <- err
	}()
	return f, nil
}

// Read reads what the pod sends. Its end may be a failure of the kubelet to connect.
func (f *forwarded) Read(b []byte) (int, error) {
	n, err := f.Stream.Read(b)
	if errors.Is(err, io.EOF) {
		if failure := f.ended(); failure != nil {
			err = failure
		}
	}
	return n, err
}

// CloseWrite ends what is sent to the pod.
func (f *forwarded) CloseWrite() error { return f.Stream.Close() }

// Close ends the connection.
func (f *forwarded) Close() error {
	f.conn.RemoveStreams(f.Stream)
	return f.Reset()
}
