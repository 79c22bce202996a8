package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAllocateIDs(t *testing.T) {
	t.Parallel()
	all := idRange{first: 65536, pods: 3}
	used := map[uint32]bool{0: true}
	for _, want := range []uint32{65536, 131072, 196608} {
		got, err := all.allocate(used)
		if err != nil || got != want {
			t.Errorf("besides %v: %d, %v, want %d", used, got, err, want)
		}
		used[got] = true
	}
	if _, err := all.allocate(used); err == nil || !strings.Contains(err.Error(), "the IDs from 65536 are for 3 pods") {
		t.Errorf("with all in use: %v", err)
	}
	delete(used, 131072)
	if got, err := all.allocate(used); err != nil || got != 131072 {
		t.Errorf("after a release: %d, %v", got, err)
	}
}

func TestReadIDRange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, subuid, subgid string
		want                 idRange
		wantErr              string
	}{
		{name: "its own", subuid: "x:1:2\nkubelet:655360:131072\n", subgid: "kubelet:655360:131072\n", want: idRange{first: 655360, pods: 2}},
		{name: "others alone", subuid: "x:100000:65536\n", subgid: "x:100000:65536\n", want: idRange{first: 65536, pods: 65534}},
		{name: "not the same", subuid: "kubelet:65536:65536", wantErr: "must be the same"},
		{name: "not aligned", subuid: "kubelet:100000:65536", subgid: "kubelet:100000:65536", wantErr: "multiples of 65536"},
		{name: "root", subuid: "kubelet:0:65536", subgid: "kubelet:0:65536", wantErr: "above 0"},
		{name: "not a number", subuid: "kubelet:x:65536", wantErr: "first ID 0 and count 65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			etc := t.TempDir()
			for name, text := range map[string]string{"subuid": tt.subuid, "subgid": tt.subgid} {
				if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := readIDRange(etc)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}
