package cmd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runonce/cmd/cmdline"
	"github.com/runonce/runonce/runtime/network"
)

func parseNetwork(t *testing.T, args ...string) (o backend.Options, err error) {
	t.Helper()
	var f networkFlags
	i := cmdline.Parse(append([]string{"runonce", "run"}, args...), &cli.Command{Subcommands: []*cli.Command{{Name: "run", Flags: f.flags()}}})
	if _, err := i.SetFlags(); err != nil {
		t.Fatal(err)
	}
	if err := f.check(); err != nil {
		return o, err
	}
	f.setTo(&o)
	return o, nil
}

func TestNetworkOptions(t *testing.T) {
	t.Parallel()
	o, err := parseNetwork(t, "--pod-cidr", "fd00:88::/64", "--pod-cidr", "10.88.0.0/16", "--cluster-dns", "10.96.0.10,fd00::a", "--cluster-domain", ".example.", "--cni-bin-dir", "/a", "--cni-conf-dir", "/")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(o.Network.PodCIDRs); got != "[10.88.0.0/16 fd00:88::/64]" {
		t.Errorf("networks %s", got)
	}
	o.Network.PodCIDRs = nil
	want := backend.Options{
		Network: network.Options{CNIConfDir: "/", CNIBinDirs: []string{"/a"}, ClusterDomain: "example"}, ClusterDNS: []string{"10.96.0.10", "fd00::a"},
	}
	if diff := cmp.Diff(want, o); diff != "" {
		t.Error(diff)
	}
	o, err = parseNetwork(t)
	if diff := cmp.Diff(backend.Options{Network: network.Options{CNIConfDir: "/etc/cni/net.d", ClusterDomain: "cluster.local"}}, o); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestNetworkErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args  []string
		words string
	}{
		{[]string{"--pod-cidr", "10.88.0.0"}, `--pod-cidr "10.88.0.0": must be a network`},
		{[]string{"--pod-cidr", "10.88.0.1/16"}, "must be a network"},
		{[]string{"--pod-cidr", "10.88.0.0/31"}, "too small"},
		{[]string{"--pod-cidr", "10.88.0.0/16,10.89.0.0/16"}, "only one IPv4"},
		{[]string{"--cluster-dns", "dns.example"}, `--cluster-dns "dns.example": must be an IP address`},
	} {
		if _, err := parseNetwork(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%v: %v, want %q", tt.args, err, tt.words)
		}
	}
}
