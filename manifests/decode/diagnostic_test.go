package decode

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestString(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   Diagnostic
		want string
	}{
		{Diagnostic{File: "f", Line: 3, Field: "a.b", Message: "m", Hint: "h"}, "f:3: a.b: m (h)"},
		{Diagnostic{File: "f", Message: "m"}, "f: m"},
		{Diagnostic{Message: "m"}, "m"},
		{Diagnostic{File: "f", Field: "a[\n\x1b[31m]", Message: "é"}, `f: a[\n\x1b[31m]: é`},
	} {
		if d := cmp.Diff(tt.want, tt.in.String()); d != "" {
			t.Error(d)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	l := Diagnostics{
		{File: "b", Line: 1, Message: "x", Severity: SeverityError},
		{File: "a", Line: 10, Message: "x", Severity: SeverityWarning},
		{File: "a", Line: 9, Message: "y", Severity: SeverityError},
		{File: "b", Line: 1, Message: "x", Severity: SeverityError},
	}.Sort()
	if d := cmp.Diff("a:9: y\na:10: x\nb:1: x", l.Error()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff("a:10: x", l.Of(SeverityWarning).Error()); d != "" {
		t.Error(d)
	}
	if l.Err() == nil || Diagnostics(nil).Err() != nil {
		t.Error("an empty list is no error, any other is one")
	}
}
