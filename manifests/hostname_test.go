package manifests

import (
	"strings"
	"testing"
)

// TestHostname: a full name that is too long for a host name is an error, as far as the domain is known.
func TestHostname(t *testing.T) {
	t.Parallel()
	const full = "subdomain: peers, setHostnameAsFQDN: true"
	for _, tt := range []struct {
		name, spec, domain string
		length             int    // of the pod's name
		want               string // a part of the error
	}{
		{"fits", full, "cluster.local", 64 - len(".peers.default.svc.cluster.local"), ""},
		{"too long", full, "cluster.local", 65 - len(".peers.default.svc.cluster.local"), "f:4: spec.setHostnameAsFQDN: the host name would be " + strings.Repeat("n", 33) + ".peers.default.svc.cluster.local, which has 65 bytes, more than the 64 of a host name"},
		{"a short domain", full, "lan", 64 - len(".peers.default.svc.lan"), ""},
		{"a domain that may be short", full, "", 64 - len(".peers.default.svc.x"), ""},
		{"with any domain", full, "", 65 - len(".peers.default.svc.x"), "which has 65 bytes"},
		{"another host name", full + ", hostname: db", "cluster.local", 63, ""},
		{"a short name", "subdomain: peers", "cluster.local", 63, ""},
		{"the host's name", full + ", hostNetwork: true", "cluster.local", 63, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			in := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + strings.Repeat("n", tt.length) + "}\nspec: {" + tt.spec + ", containers: [{name: c, image: i}]}\n"
			_, err := ReadPaths(t.Context(), []string{"-"}, Options{Stdin: strings.NewReader(in), ClusterDomain: tt.domain})
			if err == nil && tt.want == "" {
				return
			}
			if err == nil || tt.want == "" || !strings.Contains(strings.Replace(err.Error(), "<stdin>", "f", 1), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
