package ocispec

import "testing"

func TestCgroupsPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		parent, want string
		slice        bool
	}{
		{parent: "/runonce/podu", want: "/runonce/podu/u-c-0"},
		{parent: "runonce-podu.slice", want: "runonce-podu.slice:runonce:u-c-0", slice: true},
		{parent: "runonce_1a2b-burstable-podu.slice", want: "runonce_1a2b-burstable-podu.slice:runonce_1a2b:u-c-0", slice: true},
	}
	for _, tt := range tests {
		got := CgroupsPath(tt.parent, "u-c-0")
		if got != tt.want || InSlice(got) != tt.slice {
			t.Errorf("in %s: %s, in a slice: %t; want %s, %t", tt.parent, got, InSlice(got), tt.want, tt.slice)
		}
	}
}
