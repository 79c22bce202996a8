// Package cluster runs pods on a Kubernetes cluster through its API server: it has the server
// judge them before anything is created, creates them, and follows them with a watch.
package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// InCluster is the Kubeconfig of a program that runs in a pod of the cluster.
const InCluster = "in-cluster"

// namespaceFile has the namespace of a pod, for programs in it.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Target says which cluster is meant.
type Target struct {
	Kubeconfig string // a file, or InCluster; "" is $KUBECONFIG or ~/.kube/config
	Context    string // of the kubeconfig; "" is its current one
}

// Config says how to reach a cluster.
type Config struct {
	Namespace string // of objects that name none
	rest      *rest.Config
}

// Load reads the kubeconfig. It connects to nothing.
func (t Target) Load() (Config, error) {
	if t.Kubeconfig == InCluster {
		return t.loadInCluster()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.Kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return Config{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if len(raw.Clusters) == 0 {
		return Config{}, fmt.Errorf("reading the kubeconfig: %s has no cluster", strings.Join(rules.GetLoadingPrecedence(), ", "))
	}
	if err := clientcmd.ConfirmUsable(*raw, cmp.Or(t.Context, raw.CurrentContext)); err != nil {
		return Config{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Unlike the deferred one, it does not look for a cluster around this process.
	client := clientcmd.NewNonInteractiveClientConfig(*raw, t.Context, &clientcmd.ConfigOverrides{}, rules)
	c := Config{}
	if c.rest, err = client.ClientConfig(); err != nil {
		return Config{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if c.Namespace, _, err = client.Namespace(); err != nil {
		return Config{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return c, nil
}

func (t Target) loadInCluster() (Config, error) {
	if t.Context != "" {
		return Config{}, errors.New("in a cluster there is no kubeconfig, and so no context")
	}
	c, err := rest.InClusterConfig()
	if err != nil {
		return Config{}, fmt.Errorf("looking for the cluster of this pod: %w", err)
	}
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return Config{}, fmt.Errorf("looking for the namespace of this pod: %w", err)
	}
	return Config{Namespace: strings.TrimSpace(string(namespace)), rest: c}, nil
}
