package rules

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// A client stays with its endpoint, also when others come and go; when its own is gone, it gets another one, and
// stays with that.
func TestAffinity(t *testing.T) {
	for _, ip := range []netip.Addr{clusterIP, clusterIP6} {
		t.Run(ip.String(), func(t *testing.T) {
			m := newMachine(t)
			for _, p := range m.pods {
				serve(t, p.netns, p.name, 8080)
			}
			sticky := func(pods ...pod) Table {
				p := port(pods...)
				p.Affinity = time.Hour
				return table(p)
			}
			m.apply(t, sticky(m.pods...))
			first := wantSame(t, m, at(ip, 80))
			var own pod
			var others []pod
			for _, p := range m.pods {
				if p.name == first {
					own = p
				} else {
					others = append(others, p)
				}
			}
			m.apply(t, sticky(others[1], own))
			m.apply(t, sticky(others[0], others[1], own))
			if got := wantSame(t, m, at(ip, 80)); got != first {
				t.Errorf("after Apply, the client of %s got to %s", first, got)
			}
			m.apply(t, sticky(others...))
			second := wantSame(t, m, at(ip, 80))
			m.apply(t, sticky(m.pods...))
			if got := wantSame(t, m, at(ip, 80)); got != second {
				t.Errorf("when its first endpoint %s has come back, the client of %s got to %s", first, second, got)
			}
		})
	}
}

// TestAffinityEnds: after the timeout a client gets any endpoint.
func TestAffinityEnds(t *testing.T) {
	m := newMachine(t)
	for _, p := range m.pods {
		serve(t, p.netns, p.name, 8080)
	}
	p := port(m.pods...)
	p.Affinity = time.Second
	m.apply(t, table(p))
	got := map[string]bool{}
	for range 50 { // one in three gets the same again
		answer, err := ask(m.host, "tcp", at(clusterIP, 80))
		if err != nil {
			t.Fatal(err)
		}
		if got[answer] = true; len(got) > 1 {
			return
		}
		time.Sleep(p.Affinity + p.Affinity/2)
	}
	t.Errorf("the client always got to %v", got)
}

// wantSame connects several times, and returns the name of the endpoint.
func wantSame(t *testing.T, m *machine, addr string) string {
	t.Helper()
	name := ""
	for range 20 {
		got, err := ask(m.host, "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		got = strings.Fields(got)[0]
		if name != "" && name != got {
			t.Fatalf("the client of %s got to %s", name, got)
		}
		name = got
	}
	return name
}
