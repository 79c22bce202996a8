package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

func TestIsPermanent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		in   error
		want bool
	}{
		{"none", nil, false},
		{"other", errors.New("x"), false},
		{"marked", Permanent(fs.ErrNotExist), true},
		{"wrapped", fmt.Errorf("y: %w", Permanentf("x %d", 1)), true},
		{"joined", errors.Join(errors.New("y"), Permanentf("x")), true},
	} {
		if got := IsPermanent(tt.in); got != tt.want {
			t.Errorf("%s: IsPermanent = %v", tt.name, got)
		}
	}
	if err := Permanentf("reading: %w", fs.ErrNotExist); !errors.Is(err, fs.ErrNotExist) || err.Error() != "reading: file does not exist" {
		t.Errorf("got %v", err)
	}
}
