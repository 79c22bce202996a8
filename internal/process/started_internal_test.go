package process

import (
	"strings"
	"testing"
)

func TestStarted(t *testing.T) {
	t.Parallel()
	const stat = "7 (a) (b c) S 1 7 7 0 -1 4194560 98 0 1 0 0 0 0 0 20 0 1 0 1408632 3133440 358\n"
	for text, want := range map[string]string{
		stat:                                     "1408632",
		strings.Replace(stat, ") S ", ") Z ", 1): "",
		strings.Replace(stat, "4194560", "4194564", 1):    "", // it is about to be a zombie
		strings.Replace(stat, " 358\n", "", 1):            "1408632",
		strings.Replace(stat, " 20 0 1 0 1408632", "", 1): "",
		"": "",
	} {
		if got, ok := started(fieldsOf(text)); got != want && ok || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}
