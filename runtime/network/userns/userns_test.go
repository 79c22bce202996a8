package userns_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/runtime/network/userns"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	all := userns.Range{First: 65536, Pods: 3}
	taken := map[uint32]bool{0: true}
	for _, want := range []uint32{65536, 131072, 196608} {
		got, err := all.Choose(taken)
		if err != nil || got != want {
			t.Errorf("beside %v: %d, %v, want %d", taken, got, err, want)
		}
		taken[got] = true
	}
	if _, err := all.Choose(taken); err == nil || !strings.Contains(err.Error(), "the IDs from 65536 are for 3 pods") {
		t.Errorf("with all taken: %v", err)
	}
	delete(taken, 131072)
	if got, err := all.Choose(taken); err != nil || got != 131072 {
		t.Errorf("after a release: %d, %v", got, err)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, subuid, subgid string
		want                 userns.Range
		fault                string
	}{
		{name: "its own", subuid: "x:1:2\nkubelet:655360:131072\n", subgid: "kubelet:655360:131072\n", want: userns.Range{First: 655360, Pods: 2}},
		{name: "others alone", subuid: "x:100000:65536\n", subgid: "x:100000:65536\n", want: userns.Range{First: 65536, Pods: 65534}},
		{name: "not the same", subuid: "kubelet:65536:65536", fault: "must be the same"},
		{name: "not aligned", subuid: "kubelet:100000:65536", subgid: "kubelet:100000:65536", fault: "multiples of 65536"},
		{name: "root", subuid: "kubelet:0:65536", subgid: "kubelet:0:65536", fault: "above 0"},
		{name: "no number", subuid: "kubelet:x:65536", fault: "invalid syntax"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			etc := t.TempDir()
			for name, text := range map[string]string{"subuid": tt.subuid, "subgid": tt.subgid} {
				if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := userns.Source(etc)
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("error %v, want %q", err, tt.fault)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}
