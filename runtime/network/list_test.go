package network

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestListed: only a list that changed while it was read is read again.
func TestListed(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for _, tt := range []struct {
		name    string
		errs    []error // of the calls
		want    error
		wantTry int
	}{
		{"complete", []error{nil}, nil, 1},
		{"interrupted", []error{netlink.ErrDumpInterrupted, netlink.ErrDumpInterrupted, nil}, nil, 3},
		{"another error", []error{netlink.ErrDumpInterrupted, other, nil}, other, 2},
	} {
		tries := 0
		got, err := Listed(func() (int, error) {
			tries++
			return tries, tt.errs[tries-1]
		})
		if !errors.Is(err, tt.want) || got != tt.wantTry || tries != tt.wantTry {
			t.Errorf("%s: %d after %d tries, %v", tt.name, got, tries, err)
		}
	}
	if _, err := Listed(func() (int, error) { return 0, netlink.ErrDumpInterrupted }); !errors.Is(err, netlink.ErrDumpInterrupted) {
		t.Errorf("never complete: %v", err)
	}
}
