package containerd_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/runonce/runonce/internal/testing/daemon"
	"github.com/runonce/runonce/runtime/containerd/images"
	"github.com/runonce/runonce/runtime/containerd/server"
)

// TestLeasesOfTheDead: the next process ends the leases of a killed one, but neither those of
// others nor its own.
func TestLeasesOfTheDead(t *testing.T) {
	for _, version := range []daemon.Version{daemon.Current, daemon.Debian} {
		t.Run(string(version), func(t *testing.T) {
			p := servedDirs(t, version)
			cl, err := client.New(p.address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cl.Close() })
			ctx := namespaces.WithNamespace(t.Context(), p.namespace())
			self := makeLeases(ctx, t, cl)
			e := p.open(t, t.Context())
			if got := slices.Sorted(maps.Keys(held(ctx, t, cl))); !slices.Equal(got, []string{"alive", "foreign"}) {
				t.Errorf("leases %q, want only those of who lives", got)
			}
			archive, err := boxArchive()
			if err != nil {
				t.Fatal(err)
			}
			during := map[string]string{}
			a := archiveOf(t, archive)
			a.OnRead = func(int64, int64) { maps.Copy(during, held(ctx, t, cl)) }
			if _, err := e.ImportArchive(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			delete(during, "alive")
			delete(during, "foreign")
			if all := slices.Collect(maps.Values(during)); !slices.Equal(all, []string{self}) {
				t.Errorf("held by %q during an import, want %q", all, self)
			}
			if got := held(ctx, t, cl); len(got) != 2 {
				t.Errorf("leases %v, want those of before", got)
			}
			for _, id := range []string{"alive", "foreign"} {
				if err := cl.LeasesService().Delete(ctx, leases.Lease{ID: id}); err != nil {
					t.Error(err)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLeasesOfTheLiving: who serves after a process that was killed ends the leases of the dead, but
// not those of the processes that were its clients, and may be fetching an image.
func TestLeasesOfTheLiving(t *testing.T) {
	p := newTestDirs(t)
	_, kill := p.other(t, "")
	ctx := namespaces.WithNamespace(t.Context(), p.namespace())
	dial := func() *client.Client {
		cl, err := client.New(server.Socket(p.options().State))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close() })
		return cl
	}
	makeLeases(ctx, t, dial())
	kill()
	e := p.open(t, t.Context())
	if got := slices.Sorted(maps.Keys(held(ctx, t, dial()))); !slices.Equal(got, []string{"alive", "foreign"}) {
		t.Errorf("leases %q, want those of who lives", got)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// makeLeases makes leases of a dead process, of this one, whose name it returns, and of nobody.
func makeLeases(ctx context.Context, t *testing.T, cl *client.Client) (self string) {
	t.Helper()
	self, err := images.LeaseHolder()
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(self)
	dead := strings.Join([]string{f[0], f[1], "4194305", f[3]}, " ") // more than the kernel gives
	for id, holder := range map[string]string{"dead": dead, "alive": self, "foreign": ""} {
		options := []leases.Opt{leases.WithID(id)}
		if holder != "" {
			options = append(options, leases.WithLabel(images.LeaseLabel, holder))
		}
		if _, err := cl.LeasesService().Create(ctx, options...); err != nil {
			t.Fatal(err)
		}
	}
	return self
}

// held returns the holders of all leases.
func held(ctx context.Context, t *testing.T, cl *client.Client) map[string]string {
	t.Helper()
	all, err := cl.LeasesService().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	holders := map[string]string{}
	for _, l := range all {
		holders[l.ID] = l.Labels[images.LeaseLabel]
	}
	return holders
}
