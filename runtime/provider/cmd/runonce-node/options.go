package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/runonce/runonce/admit"
	"github.com/runonce/runonce/admit/nodeinfo"
	"github.com/runonce/runonce/runonce/cmd/backend"
	"github.com/runonce/runonce/runtime/network"
)

// Modes of authorization, named as the kubelet's.
const (
	webhook     = "Webhook"
	alwaysAllow = "AlwaysAllow"
)

// options are the flags.
type options struct {
	kubeconfig        string
	name, ip          string
	address           string
	port              int
	certFile, keyFile string
	clientCA          string
	authorization     string
	reserve           string
	dns               string
	imagesDir         string
	backend           backend.Options

	reserved v1.ResourceList // that reserve stands for
	detect   func(options) (*v1.Node, error)
}

// parse returns the options that the arguments stand for. It prints what is wrong with them.
func parse(args []string) (options, error) {
	o := options{detect: detect}
	o.backend.PodPidsLimit = -1
	f := flag.NewFlagSet("runonce-node", flag.ContinueOnError)
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "`FILE` that says how to reach the API server; without one, as a pod of the cluster")
	f.StringVar(&o.name, "node-name", "", "`NAME` of the node (default the host name)")
	f.StringVar(&o.ip, "node-ip", "", "`ADDRESS` by which the API server reaches this machine (default that of the default route)")
	f.StringVar(&o.address, "address", "", "`ADDRESS` to serve the port on (default all)")
	f.IntVar(&o.port, "port", 10250, "`PORT` that serves logs, commands and metrics to the API server")
	f.StringVar(&o.certFile, "tls-cert-file", "", "`FILE` with the certificate of that port (default self-signed)")
	f.StringVar(&o.keyFile, "tls-private-key-file", "", "`FILE` with its key")
	f.StringVar(&o.clientCA, "client-ca-file", "", "`FILE` with the certificates of those who sign clients of that port")
	f.StringVar(&o.authorization, "authorization-mode", webhook, "`MODE`: Webhook asks the API server who may use that port, AlwaysAllow lets everybody")
	f.StringVar(&o.reserve, "reserve", "", "`LIST` of resources that pods do not get, such as cpu=500m,memory=1Gi")
	f.StringVar(&o.backend.Root, "root", "/var/lib/runonce-node", "`DIR` for what outlives a reboot")
	f.StringVar(&o.backend.State, "state", "/run/runonce-node", "`DIR` for what does not")
	f.StringVar(&o.backend.LogDir, "log-dir", "/var/log/pods", "`DIR` for logs")
	f.StringVar(&o.imagesDir, "images-dir", "", "`DIR` of image archives to import; their images are not pulled")
	f.StringVar(&o.backend.CgroupDriver, "cgroup-driver", "cgroupfs", "`DRIVER` of cgroups: cgroupfs or systemd")
	f.StringVar(&o.dns, "cluster-dns", "", "`LIST` of addresses of the cluster's DNS servers")
	f.StringVar(&o.backend.Network.ClusterDomain, "cluster-domain", "cluster.local", "`DOMAIN` of the cluster")
	f.StringVar(&o.backend.Network.CNIConfDir, "cni-conf-dir", "/etc/cni/net.d", "`DIR` of the network configuration; without one there, pods get a bridge")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.complete(f.Args())
	if err != nil {
		_, _ = fmt.Fprintln(f.Output(), "runonce-node:", err)
	}
	return o, err
}

// complete checks the flags and fills in what follows from them.
func (o *options) complete(rest []string) (err error) {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q", rest[0])
	case o.authorization != webhook && o.authorization != alwaysAllow:
		return fmt.Errorf("--authorization-mode %q: must be %s or %s", o.authorization, webhook, alwaysAllow)
	case (o.certFile == "") != (o.keyFile == ""):
		return errors.New("--tls-cert-file and --tls-private-key-file must be used together")
	}
	if o.reserved, err = admit.ParseResources(o.reserve); err != nil {
		return fmt.Errorf("--reserve: %w", err)
	}
	if o.name == "" {
		if o.name, err = os.Hostname(); err != nil {
			return fmt.Errorf("naming the node: %w", err)
		}
	}
	o.name = strings.ToLower(o.name)
	if o.ip == "" {
		ips, err := network.HostIPs()
		if err != nil {
			return fmt.Errorf("getting the addresses of the machine: %w", err)
		}
		o.ip = ips[0]
	}
	for _, dir := range []*string{&o.backend.Root, &o.backend.State, &o.backend.LogDir} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return fmt.Errorf("resolving directory %q: %w", *dir, err)
		}
	}
	if o.backend.Root == o.backend.State {
		return errors.New("--root and --state must be different directories")
	}
	o.backend.PodsRoot, o.backend.ClaimsDir = o.backend.Root, filepath.Join(o.backend.Root, "claims")
	o.backend.ClusterDNS = strings.FieldsFunc(o.dns, func(r rune) bool { return r == ',' })
	return nil
}

// detect describes this machine, as "runonce plan" does.
func detect(o options) (*v1.Node, error) {
	if err := os.MkdirAll(o.backend.Root, 0o711); err != nil {
		return nil, err
	}
	disk, err := nodeinfo.Statfs(o.backend.Root)
	if err != nil {
		return nil, err
	}
	return admit.Detect(os.DirFS("/"), admit.DetectOptions{
		NodeOptions: admit.NodeOptions{Name: o.name, Reserved: o.reserved}, NodeFS: disk, ImageFS: disk,
	})
}
