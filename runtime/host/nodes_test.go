package host

import (
	"os"
	"testing"
)

func TestDeviceNodes(t *testing.T) {
	t.Parallel()
	got, err := DeviceNodes("/dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		if d.Path != "/dev/null" {
			continue
		}
		if d.Type != "c" || d.Major != 1 || d.Minor != 3 || *d.FileMode&os.ModePerm != 0o666 {
			t.Errorf("/dev/null is %+v", d)
		}
		return
	}
	t.Error("no /dev/null among the devices")
}
