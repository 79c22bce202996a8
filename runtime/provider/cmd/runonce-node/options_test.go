package main

import (
	"strings"
	"testing"
)

// TestParse: what the flags stand for, and which are refused.
func TestParse(t *testing.T) {
	t.Parallel()
	o, err := parse(strings.Fields("-node-name EDGE -node-ip 192.0.2.7 -cluster-dns 10.96.0.10,fd00::a -root /r -reserve cpu=500m"))
	must(t, err)
	want(t, "name", o.name, "edge")
	want(t, "DNS servers", strings.Join(o.backend.ClusterDNS, " "), "10.96.0.10 fd00::a")
	want(t, "claims", o.backend.ClaimsDir, "/r/claims")
	want(t, "reserved", o.reserved.Cpu().String(), "500m")
	for _, c := range []struct{ args, want string }{
		{"pods.yaml", `unexpected argument "pods.yaml"`},
		{"-authorization-mode RBAC", `--authorization-mode "RBAC": must be Webhook or AlwaysAllow`},
		{"-tls-cert-file c.pem", "--tls-cert-file and --tls-private-key-file must be used together"},
		{"-root /d -state /d", "--root and --state must be different directories"},
		{"-reserve cpu", "--reserve: "},
	} {
		if _, err := parse(strings.Fields(c.args)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
}

// TestKubernetesVersion: the node claims that of the libraries.
func TestKubernetesVersion(t *testing.T) {
	t.Parallel()
	if v := kubernetesVersion(); !strings.HasPrefix(v, "v1.37.") {
		t.Error(v)
	}
}
