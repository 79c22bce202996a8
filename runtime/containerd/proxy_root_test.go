package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/runonce/runonce/runtime/containerd/server"
)

// proxy forwards all calls between clients and the process that serves them.
type proxy struct {
	server *grpc.ClientConn
	// lose is a method whose first answer is lost, as if the server had ended.
	lose string
	// lost is called before.
	lost func()

	mu    sync.Mutex
	calls map[string]int // by method
}

// raw is the codec of messages that nobody decodes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return nil, fmt.Errorf("a message is a %T", v)
}

func (raw) Unmarshal(data []byte, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = slices.Clone(data)
		return nil
	}
	return fmt.Errorf("a message is a %T", v)
}

func (raw) Name() string { return "proto" }

// startProxy puts a proxy between the process that serves and those that join later.
func startProxy(t *testing.T, p testDirs, lose string, lost func()) *proxy {
	t.Helper()
	socket := server.Socket(p.options().State)
	if err := os.Rename(socket, socket+".real"); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+socket+".real", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	x := &proxy{server: conn, lose: lose, lost: lost, calls: map[string]int{}}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(x.forward))
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		_ = conn.Close()
	})
	return x
}

func (x *proxy) forward(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	x.mu.Lock()
	x.calls[method]++
	lost := method == x.lose && x.calls[method] == 1
	x.mu.Unlock()
	md, _ := metadata.FromIncomingContext(client.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(client.Context(), md))
	defer cancel()
	upstream, err := x.server.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var m []byte
			if client.RecvMsg(&m) != nil {
				_ = upstream.CloseSend()
				return
			}
			if upstream.SendMsg(&m) != nil {
				return
			}
		}
	}()
	for {
		var m []byte
		if err := upstream.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if lost {
			x.lost()
			return status.Error(codes.Unavailable, "the server has ended")
		}
		if err := client.SendMsg(&m); err != nil {
			return err
		}
	}
}

func (x *proxy) count(method string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.calls[method]
}
