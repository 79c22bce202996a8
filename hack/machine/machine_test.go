package machine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOwnRules: the rules of other installations, and those that all programs with the same plugins share,
// are not an installation's.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	const listing = `*nat
:PREROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -s 10.73.0.0/20 ! -d 224.0.0.0/4 ! -o runonce-aaaaaa -m comment --comment "runonce runonce-aaaaaa" -j MASQUERADE
-A POSTROUTING -s 10.73.16.0/20 ! -d 224.0.0.0/4 ! -o runonce-bbbbbb -m comment --comment "runonce runonce-bbbbbb" -j MASQUERADE
-A CNI-DN-0000000000000000000aa -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.73.0.2:80
-A CNI-DN-0000000000000000000bb -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.73.16.2:80
-A CNI-DN-0000000000000000000cc -p tcp -m tcp --dport 82 -j DNAT --to-destination 10.73.0.3:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"runonce-aaaaaa\" id: \"1\"" -m multiport --dports 80 -j CNI-DN-0000000000000000000aa
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"runonce-bbbbbb\" id: \"2\"" -m multiport --dports 81 -j CNI-DN-0000000000000000000bb
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
COMMIT
`
	want := []string{
		`-A POSTROUTING -s 10.73.0.0/20 ! -d 224.0.0.0/4 ! -o runonce-aaaaaa -m comment --comment "runonce runonce-aaaaaa" -j MASQUERADE`,
		`-A CNI-DN-0000000000000000000aa -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.73.0.2:80`,
		`-A CNI-DN-0000000000000000000cc -p tcp -m tcp --dport 82 -j DNAT --to-destination 10.73.0.3:80`,
		`-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"runonce-aaaaaa\" id: \"1\"" -m multiport --dports 80 -j CNI-DN-0000000000000000000aa`,
	}
	if diff := cmp.Diff(want, ownRules(listing, "runonce-aaaaaa")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := ownRules("", "runonce-aaaaaa"); len(got) > 0 {
		t.Errorf("rules of nothing: %q", got)
	}
}
