package cmd_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/registry"
	"github.com/runonce/runonce/internal/testing/testimages"
	"github.com/runonce/runonce/runonce"
	"github.com/runonce/runonce/runonce/report"
)

// clusterImages: the kubelet pulls images from a registry; what the registry says about one that cannot
// be pulled is the reason of the failure, which comes at once.
func clusterImages(t *testing.T, c onCluster) {
	server := registry.Start(t, registry.Options{Users: true})
	host := server.Host
	root, err := testimages.Root()
	if err != nil {
		t.Fatal(err)
	}
	program, err := testimages.Program(t.Context(), root, "box")
	if err != nil {
		t.Fatal(err)
	}
	image := testimages.Image{Program: "box", Files: map[string]string{"/pulled": "from the registry\n"}}.Contents(program)
	image.Config.Entrypoint = []string{"/bin/box"}
	server.Push(t, "team/box:1", image)
	auth := base64.StdEncoding.EncodeToString([]byte(registry.User + ":" + registry.Password))
	secret := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: registry}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths": {%q: {"auth": %q}}}'}
`, host, auth)
	pod := func(name, image, more string) string {
		return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {restartPolicy: Never, containers: [{name: main, image: %q, args: [cat, /pulled]}]%s}
`, name, host+image, more)
	}
	const allowed = ", imagePullSecrets: [{name: registry}]"
	run := c.begin("run", "-o", "json", "--until", "completed", podDir(t, secret+
		pod("pulled", "/team/box:1", allowed)+pod("no-tag", "/team/box:2", allowed)+pod("no-repository", "/none:1", allowed)+pod("no-password", "/team/box:1", "")))
	results := map[string]report.Result{}
	for _, r := range run.end(t, 1).Results {
		results[r.Name] = r
	}
	if r := results["pulled"]; r.Outcome != runonce.Succeeded || c.once(t, "logs", "pulled") != "from the registry\n" {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{"no-tag": "/team/box:2: not found", "no-repository": "/none:1: not found", "no-password": "/team/box:1\": failed to resolve image: pull access denied"} {
		r := results[name]
		if r.Outcome != runonce.Failed || r.Reason != "ErrImagePull" || r.Attempts != 1 || !strings.Contains(r.Message, host+want) {
			t.Errorf("%+v", r)
		}
	}
}

// clusterSlowPull: a pod that has waited for a node, and whose image then takes long, is not in trouble.
func clusterSlowPull(t *testing.T, c onCluster) {
	var first sync.Once
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { time.Sleep(7 * time.Second) }) // longer than a pod may be silent
		http.NotFound(w, r)
	}))
	defer registry.Close()
	c.withBed(t)
	holder := podDir(t, fmt.Sprintf(sleeper, "holder", "sleep 5m", bed))
	c.once(t, "run", "--settle", "0", holder)
	image := strings.TrimPrefix(registry.URL, "http://") + "/slow:1"
	run := c.begin("run", "-o", "json", "--max-retries", "0", podDir(t, strings.Replace(fmt.Sprintf(sleeper, "slow", "exit 0", bed), "localhost/box:1", image, 1)))
	run.says(t, "Insufficient example.com/bed")
	c.once(t, "down", holder)
	if r := run.end(t, 1).Results[0]; r.Reason != "ErrImagePull" || r.Attempts != 1 {
		t.Errorf("%+v", r)
	}
}
