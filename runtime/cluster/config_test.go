package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://registry.example:6443"}}]
users: [{name: u, user: {token: very-secret}}]
contexts:
- {name: one, context: {cluster: c, user: u, namespace: team}}
- {name: two, context: {cluster: c, user: u}}
current-context: one
`

// TestLoad: what the kubeconfig says, and errors that name what is wrong but no secret.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", kubeconfig)
	t.Setenv("KUBECONFIG", good)
	// A process in a pod has these; they must not matter.
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	for _, test := range []struct {
		name      string
		target    Target
		namespace string
		err       string
	}{
		{name: "current context", target: Target{Kubeconfig: good}, namespace: "team"},
		{name: "context", target: Target{Kubeconfig: good, Context: "two"}, namespace: "default"},
		{name: "environment", target: Target{Context: "two"}, namespace: "default"},
		{name: "no such context", target: Target{Kubeconfig: good, Context: "three"}, err: "three"},
		{name: "no file", target: Target{Kubeconfig: filepath.Join(dir, "none")}, err: "no such file or directory"},
		{name: "empty", target: Target{Kubeconfig: write("empty", "")}, err: "has no cluster"},
		{name: "broken", target: Target{Kubeconfig: write("broken", strings.Replace(kubeconfig, "}}]\ncontexts", "}\ncontexts", 1))}, err: "reading the kubeconfig"},
		{name: "no user", target: Target{Kubeconfig: write("user", strings.Replace(kubeconfig, "name: u, user", "name: v, user", 1))}, err: "reading the kubeconfig"},
		{name: "not in a cluster", target: Target{Kubeconfig: InCluster}, err: "looking for the cluster of this pod"},
		{name: "context in a cluster", target: Target{Kubeconfig: InCluster, Context: "one"}, err: "no context"},
	} {
		c, err := test.target.Load()
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "very-secret") {
				t.Errorf("%s: %v", test.name, err)
			}
		case err != nil || c.Namespace != test.namespace || c.rest.BearerToken != "very-secret":
			t.Errorf("%s: %+v, %v", test.name, c, err)
		}
	}
}
