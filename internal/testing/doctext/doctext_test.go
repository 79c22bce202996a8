package doctext_test

import (
	"testing"

	"github.com/runonce/runonce/internal/testing/doctext"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"a    Running  1/1  0.67s  192.0.2.2,fd00::2":              "a Running 1/1 0s ADDRESS",
		"a Running 1/1 1h2m3s 10.97.0.3 ":                          "a Running 1/1 0s ADDRESS",
		"of default_a_2f3396bd-589a-551d-8055-3f8d06060267/0.log:": "of default_a_UID/0.log:",
		"serving on 127.0.0.1:6443":                                "serving on ADDRESS",
		"pod.yaml:9: a.b: exit code 7":                             "pod.yaml:9: a.b: exit code 7",
	} {
		if got := doctext.Normalize(line); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}
