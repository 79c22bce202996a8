package cmd_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/runonce/runonce/internal/testing/testcluster"
)

// clusterLimited: a user who may see some namespaces alone can do all that needs no other. The pods of the
// others are found by the manifests.
func clusterLimited(t *testing.T, c onCluster) {
	c.apply(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles/only-pods", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: only-pods}
rules: [{apiGroups: [""], resources: [pods, pods/log], verbs: ["*"]}]
`)
	for namespace, role := range map[string]string{"default": "admin", "team": "admin", "guest": "only-pods"} {
		c.apply(t, "/api/v1/namespaces/"+namespace, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
		c.apply(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace+"/rolebindings/limited", fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects: [{kind: User, name: %s}]
`, role, testcluster.Nobody))
	}
	m := machineOn(t, c.Cluster, testcluster.Nobody)
	dir := podDir(t, fmt.Sprintf(sleeper, "limited", "echo hello", "")+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: limited}\n")
	m.once(t, "run", "--until", "completed", dir)
	if out := m.once(t, "logs", "limited"); out != "hello\n" {
		t.Errorf("logs: %q", out)
	}
	if err := c.Delete(t.Context(), "/api/v1/namespaces/default/pods/limited"); err != nil {
		t.Fatal(err)
	}
	ps := m.begin("ps")
	ps.says(t, "only pods of these namespaces can be seen: default\n")
	if out := m.once(t, "down", "--all"); !strings.HasSuffix(out, "limited removed\n") {
		t.Errorf("down: %q", out)
	}
	inTeam := fmt.Sprintf(sleeper, "%[1]s, namespace: team", "sleep 5m", "")
	both := podDir(t, fmt.Sprintf(inTeam, "by-path")+"---\n"+fmt.Sprintf(inTeam, "by-name")+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: limited, namespace: team}\n")
	m.once(t, "run", "--settle", "0", both)
	if out := m.once(t, "down", "team/by-name"); out != "team/by-name removed\n" {
		t.Errorf("down: %q", out)
	}
	if out := m.once(t, "down", both); out != "team/by-path removed\nConfigMap team/limited removed\n" {
		t.Errorf("down: %q", out)
	}
	guest := podDir(t, fmt.Sprintf(sleeper, "alone, namespace: guest", "sleep 5m", "")+"  volumes: [{name: late, secret: {secretName: late}}]\n")
	m = c.with(t, "token-"+testcluster.Admin, "token-"+testcluster.Nobody, "context: {", "context: {namespace: unseen, ")
	run := m.begin("run", "--settle", "0", guest)
	run.says(t, "Starting")
	time.Sleep(7 * time.Second) // longer than a pod may be silent
	c.apply(t, "/api/v1/namespaces/guest/secrets/late", "{apiVersion: v1, kind: Secret, metadata: {name: late}}")
	if <-run.done; run.code != 0 {
		t.Errorf("exit code %d: %s", run.code, run.stderr.String())
	}
	if out := m.once(t, "down", guest); out != "guest/alone removed\n" {
		t.Errorf("down: %q", out)
	}
}
