package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublish: two pods of the same manifests get different free ports, at which they answer.
func TestPublish(t *testing.T) {
	b := newBox(t, "")
	web := func(name string) string {
		m := strings.Replace(pod(name, "Always", "web", "-dir", "/etc"), "hostNetwork: true", "hostNetwork: false", 1)
		return strings.Replace(m, "metadata: {name: "+name+"}", "metadata: {name: "+name+`, annotations: {runonce/publish: "8080=127.0.0.1:auto"}}`, 1)
	}
	file := filepath.Join(t.TempDir(), "ports.env")
	b.up(t, directory(t, web("a"), web("b")), 0, "--ports-to", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		name, address, _ := strings.Cut(strings.TrimSpace(line), "=")
		if !strings.HasPrefix(name, "ADDRESS_") {
			continue
		}
		addresses[address] = true
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", name, response.Status, err)
		}
	}
	if len(addresses) != 2 {
		t.Errorf("the ports are\n%s", text)
	}
}
