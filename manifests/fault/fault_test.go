package fault

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestString(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   Fault
		want string
	}{
		{Fault{File: "f", Line: 3, Field: "a.b", Message: "m", Hint: "h"}, "f:3: a.b: m (h)"},
		{Fault{File: "f", Message: "m"}, "f: m"},
		{Fault{Message: "m"}, "m"},
		{Fault{File: "f", Field: "a[\n\x1b[31m]", Message: "é"}, `f: a[\n\x1b[31m]: é`},
	} {
		if d := cmp.Diff(tt.want, tt.in.String()); d != "" {
			t.Error(d)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	l := List{
		{File: "b", Line: 1, Message: "x", Severity: Error},
		{File: "a", Line: 10, Message: "x", Severity: Warning},
		{File: "a", Line: 9, Message: "y", Severity: Error},
		{File: "b", Line: 1, Message: "x", Severity: Error},
	}.Sort()
	if d := cmp.Diff("a:9: y\na:10: x\nb:1: x", l.Error()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("a:10: x", l.Of(Warning).Error()); d != "" {
		t.Error(d)
	}
	if l.Err() == nil || List(nil).Err() != nil || !l.Permanent() {
		t.Error("an empty list is no error, any other is a permanent one")
	}
}
