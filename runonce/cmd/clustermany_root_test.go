package cmd_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/runonce/runonce/hack/testcluster"
)

// clusterMany: of 1,000 pods in one run there is one watch, few requests at a time, and few in all.
func clusterMany(t *testing.T, c onCluster) {
	const n = 1000
	if err := c.Simulate(t.Context(), n/testcluster.PodsPerNode+1); err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(c.Server)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(c.Dir, "server", "apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	forward := httputil.NewSingleHostReverseProxy(server)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	forward.FlushInterval = -1
	var all, watches, now, most atomic.Int64
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			watches.Add(1)
		} else {
			all.Add(1)
			for count := now.Add(1); count > most.Load(); {
				most.Store(count)
			}
			defer now.Add(-1)
		}
		forward.ServeHTTP(w, r)
	}))
	proxy.EnableHTTP2 = true
	proxy.StartTLS()
	defer proxy.Close()
	proxyCA := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(proxyCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := os.ReadFile(c.flags[1])
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	text := strings.NewReplacer(c.Server, proxy.URL, filepath.Join(c.Dir, "server", "apiserver.crt"), proxyCA).Replace(string(kubeconfig))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var pods []string
	for i := range n {
		pod := fmt.Sprintf(sleeper, fmt.Sprintf("one-of-many-%d", i), "sleep 5m", "")
		pods = append(pods, strings.Replace(pod, "spec:", "spec:\n  nodeSelector: {simulated: \"true\"}\n  tolerations: [{key: simulated}]", 1))
	}
	dir := podDir(t, strings.Join(pods, "---\n"))
	m := machine{world: c.world, flags: []string{"--kubeconfig", config}}
	for _, r := range m.begin("run", "-o", "json", dir).end(t, 0).Results {
		if r.Outcome != "Running" {
			t.Errorf("%+v", r)
		}
	}
	// A dry run and a creation for each pod.
	if all.Load() > 2*n+20 || most.Load() > 40 || watches.Load() > 2 {
		t.Errorf("%d requests, %d at a time, %d watches", all.Load(), most.Load(), watches.Load())
	}
}
