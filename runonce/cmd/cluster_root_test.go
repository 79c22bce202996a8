package cmd_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runonce/runonce/internal/testing/roottest"
	"github.com/runonce/runonce/internal/testing/testcluster"
	"github.com/runonce/runonce/runonce/cmd"
)

// onCluster is a cluster for a test, as the machine that the program runs on sees it.
type onCluster struct {
	machine
	*testcluster.Cluster
}

// TestCluster runs the program against a real cluster with one node.
func TestCluster(t *testing.T) {
	roottest.Require(t)
	c := startCluster(t)
	t.Run("Stories", func(t *testing.T) {
		engineUnderTest{
			conditions: []string{"cluster"},
			open:       func(*testing.T) target { return c.target() },
		}.run(t, storyFiles(t)...)
	})
	for _, test := range clusterTests() {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, c)
			c.clear(t)
		})
	}
}

// startCluster starts a cluster with one node.
func startCluster(t *testing.T) onCluster {
	t.Helper()
	c := testcluster.Serve(t)
	if err := c.StartNode(t.Context()); err != nil {
		t.Fatal(err)
	}
	return onCluster{machineOn(t, c, testcluster.Admin), c}
}

// machineOn is a machine without an engine that uses the cluster as a user.
func machineOn(t *testing.T, c *testcluster.Cluster, user string) machine {
	t.Helper()
	config, err := c.Kubeconfig(user)
	if err != nil {
		t.Fatal(err)
	}
	return machine{
		world: cmd.IO{Getenv: func(string) string { return "" }, Machine: os.DirFS("/"), Open: noEngine(t).Open},
		dir:   c.Dir,
		flags: []string{"--kubeconfig", config},
	}
}

// with returns a machine with a kubeconfig in which some text is replaced (see strings.NewReplacer).
func (c onCluster) with(t *testing.T, oldnew ...string) machine {
	t.Helper()
	text, err := os.ReadFile(c.flags[1])
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return machine{world: c.world, flags: []string{"--kubeconfig", config}}
}

// target is the cluster for a story to run on.
func (c onCluster) target() target {
	return target{world: c.world, flags: c.flags, cluster: true, applyObject: c.Apply, logs: filepath.Join(c.dir, "log"), clear: c.clear}
}

// clear takes everything down, and fails the test when an object of ours stays.
func (c onCluster) clear(t *testing.T) {
	t.Helper()
	c.once(t, "down", "--all")
	for _, kind := range []string{"pods", "configmaps", "secrets", "services", "serviceaccounts"} {
		if left := c.names(t, kind, "runonce/managed"); len(left) > 0 {
			t.Errorf("%s left: %s", kind, left)
		}
	}
}

// names returns the objects of a kind that have a label, as NAMESPACE/NAME.
func (c onCluster) names(t *testing.T, kind, label string) []string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name string }
		}
	}
	text, err := c.Get(t.Context(), "/api/v1/"+kind+"?labelSelector="+label)
	if err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list.Items {
		names = append(names, i.Metadata.Namespace+"/"+i.Metadata.Name)
	}
	return names
}
