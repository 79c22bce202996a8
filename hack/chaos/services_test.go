package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestVerifyOrder: a pod that was started too early is found.
func TestVerifyOrder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		condition, ledger, dependent string
		ok                           bool
	}{
		"ready before":                       {"ready", "a start 5\n", "b start 6\n", true},
		"ready after":                        {"ready", "a start 5\n", "b start 4\n", false},
		"never ready":                        {"ready", "", "b start 4\n", false},
		"ready before, and once more":        {"ready", "a start 5\nc start 9 overlaps\n", "b start 6\n", true},
		"running, as far as is known":        {"running", "a start 5\n", "b start 4\n", true},
		"never running":                      {"running", "", "b start 4\n", false},
		"completed before":                   {"completed", "a start 1\na end 0 3\n", "b start 4\n", true},
		"completed after":                    {"completed", "a start 1\na end 0 5\n", "b start 4\n", false},
		"failed":                             {"completed", "a start 1\na end 1 3\n", "b start 4\n", false},
		"stopped before its work was done":   {"completed", "a start 1\na end 0 3 stopped\n", "b start 4\n", false},
		"completed in the second attempt":    {"completed", "a start 1\na end 1 2\nc start 3\nc end 0 4\n", "b start 5\n", true},
		"the first instance counts":          {"ready", "a start 5\n", "b start 4\nc start 6\n", false},
		"the dependent was not started":      {"ready", "", "", true},
		"still running, should be completed": {"completed", "a start 1\n", "b start 4\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &round{ledgers: t.TempDir(), order: [][]dependency{nil, {{condition: tt.condition}}}}
			for n, text := range []string{tt.ledger, tt.dependent} {
				p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", n)}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
				r.pods = append(r.pods, p)
				if err := os.WriteFile(filepath.Join(r.ledgers, p.Name+".main"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.verifyOrder(1); (err == nil) != tt.ok {
				t.Errorf("error %v, want one: %v", err, !tt.ok)
			}
		})
	}
}
