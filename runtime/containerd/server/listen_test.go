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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
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

// TestStoppedServer: a call to a process that does not respond any more ends.
func TestStoppedServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes as long as the keepalive")
	}
	socket := filepath.Join(t.TempDir(), "s")
	on, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = on.Close() }()
	go func() {
		conn, err := on.Accept()
		if err != nil {
			return
		}
		// The preface of HTTP/2 with empty settings, and then nothing any more.
		_, _ = conn.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0})
		<-t.Context().Done()
		_ = conn.Close()
	}()
	conn, err := grpc.NewClient("unix://"+socket, append(DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.Invoke(t.Context(), "/service/Method", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unavailable {
		t.Errorf("error %v, want Unavailable", err)
	}
}
