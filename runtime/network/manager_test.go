package network

import (
	"strings"
	"testing"

	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/runonce/runonce/internal/failure"
)

func TestCheckUID(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		"0a-b_c.D": true, "": false, "../x": false, "a/b": false, ".a": false, "-a": false, "a b": false, "a\x00": false,
		strings.Repeat("a", 40): true,
	} {
		pod := newPod("a")
		pod.UID = apitypes.UID(in)
		err := checkUID(pod)
		if (err == nil) != ok || err != nil && !failure.IsPermanent(err) {
			t.Errorf("checkUID(%q): error %v", in, err)
		}
	}
}
