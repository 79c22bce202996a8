package network

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/internal/process"
	"github.com/runonce/runonce/internal/testing/exectest"
	"github.com/runonce/runonce/runtime/engine"

	"github.com/runonce/runonce/runtime/record"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	const (
		plugins  = "install the package containernetworking-plugins"
		firewall = "install the package iptables or nftables"
	)
	hostNetwork := func(p *v1.Pod) { p.Spec.HostNetwork = true }
	annotated := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations = map[string]string{key: value} }
	}
	bandwidth := annotated(ingressAnnotation, "1M")
	for _, tt := range []struct {
		name     string
		programs string // space-separated, found in the directories of plugins and of programs
		conf     string
		pods     []*v1.Pod
		want     []string // in the error; none when empty
	}{
		{name: "nothing is needed"},
		{name: "host network", pods: []*v1.Pod{newPod("a", hostNetwork)}},
		{name: "no firewall", programs: "bridge host-local", pods: []*v1.Pod{newPod("a")}, want: []string{`pod "default/a":`, firewall}},
		{
			name: "no plugins", programs: "iptables-restore", pods: []*v1.Pod{newPod("h", hostNetwork), newPod("a"), newPod("b")},
			want: []string{`pod "default/a" and 1 more: no CNI plugin bridge, host-local, portmap in`, plugins},
		},
		{name: "nft needs no portmap", programs: "nft bridge host-local", pods: []*v1.Pod{newPod("a")}},
		{name: "no bandwidth plugin", programs: "nft bridge host-local", pods: []*v1.Pod{newPod("a", bandwidth)}, want: []string{"no CNI plugin bandwidth in", plugins}},
		{name: "bandwidth plugin", programs: "nft bridge host-local bandwidth", pods: []*v1.Pod{newPod("a", bandwidth)}},
		{name: "invalid bandwidth", programs: "nft bridge host-local", pods: []*v1.Pod{newPod("a", annotated(ingressAnnotation, "x"))}},
		{name: "own network", programs: "calico", conf: "calico", pods: []*v1.Pod{newPod("a", bandwidth)}},
		{
			name: "own network without its plugin", conf: "calico", pods: []*v1.Pod{newPod("a")},
			want: []string{"no CNI plugin calico in", "install the plugins of this network there"},
		},
		{
			name: "another network", programs: "nft bridge host-local", conf: "calico", pods: []*v1.Pod{newPod("a", annotated(networksAnnotation, "own"))},
			want: []string{"no CNI plugin calico in"},
		},
		{name: "unknown network", programs: "calico", conf: "calico", pods: []*v1.Pod{newPod("a", annotated(networksAnnotation, "x"))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			m := New(Options{
				Records: record.Open(dir, dir), StateDir: dir, DataDir: dir,
				CNIConfDir: filepath.Join(dir, "net.d"), CNIBinDirs: []string{filepath.Join(dir, "bin")}, Path: filepath.Join(dir, "bin"),
			})
			for name := range strings.FieldsSeq(tt.programs) {
				exectest.Write(t, filepath.Join(dir, "bin", name), "#!/bin/sh\n")
			}
			if tt.conf != "" {
				writeConf(t, m, "10.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"own","plugins":[{"type":%q}]}`, tt.conf))
			}
			err := m.Check(tt.pods)
			if (err != nil) != (len(tt.want) > 0) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			for _, words := range tt.want {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("error %v, want %q", err, words)
				}
			}
		})
	}
}

// A pod that has its sandbox needs nothing more.
func TestCheckConnectedPod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := New(Options{Records: record.Open(dir, dir), StateDir: dir, DataDir: dir, CNIConfDir: dir, CNIBinDirs: []string{dir}, Path: dir})
	pod := newPod("a")
	if err := m.Check([]*v1.Pod{pod}); err == nil {
		t.Fatal("no error before the pod has a sandbox")
	}
	if err := m.update(pod, func(r *record.Pod) { r.Sandbox = &engine.Sandbox{BootID: process.BootID()} }); err != nil {
		t.Fatal(err)
	}
	if err := m.Check([]*v1.Pod{pod}); err != nil {
		t.Error(err)
	}
}
