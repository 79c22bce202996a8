package rules

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runonce/runonce/internal/testing/roottest"
)

// many is a table of n Services with three endpoints each.
func many(n int) Table {
	t := table()
	for i := range n {
		p := port(pod{ip: netip.MustParseAddr("10.88.0.2")}, pod{ip: netip.MustParseAddr("10.88.0.3")}, pod{ip: netip.MustParseAddr("10.88.0.4")})
		p.Endpoints = append(p.Endpoints[:0:0], p.Endpoints[0], p.Endpoints[2], p.Endpoints[4])
		p.Name = fmt.Sprintf("default/service-%d:http", i)
		p.IPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)})}
		t.Ports = append(t.Ports, p)
	}
	return t
}

// BenchmarkApply changes the endpoints of one of the Services. It reports the time on a processor too, which says more
// on a busy machine.
func BenchmarkApply(b *testing.B) {
	roottest.Require(b)
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("%d Services", n), func(b *testing.B) {
			b.Cleanup(func() { _ = Remove(context.Background(), tab0) })
			next := many(n)
			if err := Apply(b.Context(), next); err != nil {
				b.Fatal(err)
			}
			all := next.Ports[0].Endpoints
			before := cpu(b)
			for b.Loop() {
				next.Ports[0].Endpoints = all[:1+len(next.Ports[0].Endpoints)%3]
				if err := Apply(b.Context(), next); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu returns what this process has used so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkConnections makes connections through a cluster IP, one of 10 or 1,000, and directly to the pod, by turns.
// It reports how long the first take, as a multiple of the second.
func BenchmarkConnections(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("%d Services", n), func(b *testing.B) {
			m := newMachine(b)
			serve(b, m.pods[0].netns, "a", 8080)
			t := many(n)
			p := port(m.pods[0])
			t.Ports = append(t.Ports, p)
			m.apply(b, t)
			var service, direct time.Duration
			for b.Loop() {
				service += connect(b, m.pods[1].netns, at(clusterIP, 80))
				direct += connect(b, m.pods[1].netns, at(m.pods[0].ip, 8080))
			}
			b.ReportMetric(float64(service)/float64(direct), "service/direct")
			b.ReportMetric(float64(b.N*atOnce)/service.Seconds(), "conn/s")
		})
	}
}

// atOnce is how many connections are made before it is the other's turn.
const atOnce = 50

// connect makes connections one after another.
func connect(b *testing.B, netns, addr string) time.Duration {
	b.Helper()
	var took time.Duration
	err := inside(netns, func() error {
		start := time.Now()
		for range atOnce {
			c, err := dialHere(addr)
			if err != nil {
				return err
			}
			if _, err := askOver(c); err != nil {
				return err
			}
			_ = c.Close()
		}
		took = time.Since(start)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return took
}
