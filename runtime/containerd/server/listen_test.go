package server

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// TestCloseDuringCall: a server waits for a call that ends, and not for ever for one that hangs.
func TestCloseDuringCall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		hangs   bool
		timeout time.Duration
		want    string
	}{
		{name: "ends", timeout: time.Hour},
		{name: "hangs", hangs: true, timeout: time.Millisecond, want: "has not ended within 1ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			called, end := make(chan struct{}), make(chan struct{})
			defer close(end)
			ended := false
			l := &listeners{grpc: grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
				close(called)
				<-stream.Context().Done()
				if tt.hangs {
					<-end
				}
				ended = true
				return nil
			}))}
			var err error
			if l.ttrpc, err = ttrpc.NewServer(); err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(t.TempDir(), "s")
			on, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			l.done.Go(func() { _ = l.grpc.Serve(on) })
			go call(t.Context(), socket)
			<-called
			err = l.close(tt.timeout)
			if tt.want == "" {
				if err != nil || !ended {
					t.Errorf("close: error %v, call ended: %t", err, ended)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("close: error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// call makes a call to which the server never answers.
func call(ctx context.Context, socket string) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return
	}
	_ = conn.Invoke(ctx, "/service/Method", &emptypb.Empty{}, &emptypb.Empty{})
	_ = conn.Close()
}
