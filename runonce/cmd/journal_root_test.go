package cmd_test

import (
	"slices"
	"strings"
	"testing"
)

// TestContainerLogsInJournal: the shim writes every line to the journal and to the file.
func TestContainerLogsInJournal(t *testing.T) {
	everywhere(t, func(t *testing.T, m machine) {
		path, await := listenJournal(t)
		m.world.Journal = path
		pods := podDir(t, `apiVersion: v1
kind: Pod
metadata: {name: talks}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: main, image: localhost/box:1, args: [do, "echo one line"]}]
`)
		m.once(t, "run", "--until", "completed", "--container-logs", "journal", "--capacity", "cpu=4,memory=1100Mi,pods=20", pods)
		entry := await("MESSAGE=one line")
		for _, field := range []string{
			"PRIORITY=6", "CONTAINER_STREAM=stdout", "POD_NAME=talks", "POD_NAMESPACE=default", "CONTAINER_NAME=main", "SYSLOG_IDENTIFIER=talks/main",
		} {
			if !slices.Contains(entry, field) {
				t.Errorf("no %s in %q", field, entry)
			}
		}
		if got := m.once(t, "logs", "talks"); !strings.Contains(got, "one line\n") {
			t.Errorf("logs: %q", got)
		}
	})
}
