package network

import (
	"net"
	"testing"
)

func TestName(t *testing.T) {
	t.Parallel()
	if got := BridgeName("/run/runonce/network"); got != "runonce0" {
		t.Errorf("got %q", got)
	}
	a, b := BridgeName("/run/a"), BridgeName("/run/b")
	if a == b || a == "runonce0" {
		t.Errorf("%q and %q", a, b)
	}
	if len(a) > 15 {
		t.Errorf("%q is too long for an interface", a)
	}
}

func TestChooseSubnet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, bridge string
		used         []string
		want         string
	}{
		{"first", "runonce0", nil, "10.62.0.0/20"},
		{"first is used", "runonce0", []string{"10.62.3.0/24"}, "10.63.0.0/20"},
		{"used by a larger one", "runonce0", []string{"10.60.0.0/14"}, "10.64.0.0/20"},
		{"others do not matter", "runonce0", []string{"10.62.16.0/20", "172.17.0.0/16"}, "10.62.0.0/20"},
		{"all used", "runonce0", []string{"10.0.0.0/8"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			used := make([]routedNetwork, 0, len(tt.used))
			for _, n := range tt.used {
				used = append(used, routedNetwork{IPNet: mustSubnet(t, n)})
			}
			got, err := chooseSubnet(tt.bridge, used)
			if tt.want == "" {
				if err == nil {
					t.Errorf("got %v, want an error", got)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("got %v, %v, want %s", got, err, tt.want)
			}
		})
	}
	other, err := chooseSubnet("runonce-abcdef", nil)
	if err != nil || other.IP[0] != 10 || other.IP[1] < firstNet || other.IP[1] >= firstNet+netCount {
		t.Errorf("another bridge: %v, %v", other, err)
	}
}

// What somebody has chosen is refused where it cannot work, and not where a larger network is
// somewhere behind a gateway.
func TestCheckFree(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		used      string
		connected bool
		free      bool
	}{
		{"10.0.0.0/8", false, true},
		{"10.0.0.0/8", true, false},
		{"10.99.0.0/16", false, false},
		{"10.99.7.0/24", false, false},
		{"10.98.0.0/16", true, true},
	} {
		err := checkFree([]*net.IPNet{mustSubnet(t, "10.99.0.0/16")}, []routedNetwork{{mustSubnet(t, tt.used), tt.connected}})
		if (err == nil) != tt.free {
			t.Errorf("%s, connected %t: %v", tt.used, tt.connected, err)
		}
	}
}

func TestFirstAddress(t *testing.T) {
	t.Parallel()
	subnet := mustSubnet(t, "10.62.0.0/20")
	if got := firstAddress(subnet).String(); got != "10.62.0.1" {
		t.Errorf("got %s", got)
	}
	if subnet.String() != "10.62.0.0/20" {
		t.Errorf("the subnet was changed to %s", subnet)
	}
}
