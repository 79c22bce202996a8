package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// credentialsOf are those of the action's mode: none, or TLS with any certificate.
func credentialsOf(a *v1.GRPCAction) credentials.TransportCredentials {
	if a.Mode != nil && *a.Mode == v1.GRPCProbeModeTLS {
		return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	return insecure.NewCredentials()
}

// grpc calls the health service of the pod (pkg/probe/grpc). Only SERVING is a success.
func (t Target) grpc(ctx context.Context, a *v1.GRPCAction, timeout time.Duration) (Outcome, error) {
	addr := net.JoinHostPort(t.IP, strconv.Itoa(int(a.Port)))
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithUserAgent(userAgent),
		grpc.WithTransportCredentials(credentialsOf(a)),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return t.dial(ctx, "tcp", addr)
		}))
	if err != nil {
		return Outcome{}, fmt.Errorf("making a client of %s: %w", addr, err)
	}
	defer func() { _ = conn.Close() }()
	service := ""
	if a.Service != nil {
		service = *a.Service
	}
	resp, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		return Outcome{Failure, fmt.Sprintf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %v", err)}, nil
	case codes.DeadlineExceeded:
		return Outcome{Failure, fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)}, nil
	case codes.Unavailable:
		return Outcome{Failure, fmt.Sprintf("error: failed to connect service at %q: %v", addr, err)}, nil
	default:
		return Outcome{Failure, fmt.Sprintf("error: health rpc probe failed: %v", err)}, nil
	}
	if s := resp.GetStatus(); s != health.HealthCheckResponse_SERVING {
		return Outcome{Failure, fmt.Sprintf("service unhealthy (responded with %q)", s)}, nil
	}
	return Outcome{Success, "service healthy"}, nil
}
