package cgroup

import (
	"errors"
	"fmt"
	"testing"

	godbus "github.com/godbus/dbus/v5"
)

func TestSliceAndPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		elements    []string
		slice, path string
	}{
		{[]string{"runonce"}, "runonce.slice", "/runonce.slice"},
		{[]string{"runonce-1a2b"}, "runonce_1a2b.slice", "/runonce_1a2b.slice"},
		{
			[]string{"runonce", "burstable", "pod0f-1e-2d"},
			"runonce-burstable-pod0f_1e_2d.slice",
			"/runonce.slice/runonce-burstable.slice/runonce-burstable-pod0f_1e_2d.slice",
		},
	}
	for _, tt := range tests {
		slice := sliceName(tt.elements...)
		if path := slicePath(slice); slice != tt.slice || path != tt.path {
			t.Errorf("%q is %s in %s, want %s in %s", tt.elements, slice, path, tt.slice, tt.path)
		}
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("asking: %w", godbus.Error{Name: "org.freedesktop.systemd1.UnitExists"})
	if !isSystemdError(err, "UnitExists") || isSystemdError(err, "NoSuchUnit") || isSystemdError(errors.New("UnitExists"), "UnitExists") {
		t.Error("an error of systemd is not recognized by its name")
	}
}
