package enginetest_test

import (
	"path/filepath"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/podusage"
	"github.com/runonce/runonce/runtime/engine"
	"github.com/runonce/runonce/runtime/engine/enginetest"
)

func TestEngineConforms(t *testing.T) {
	t.Parallel()
	enginetest.Conform(t, func(t *testing.T) enginetest.Subject {
		e := &enginetest.Engine{
			Dir:     t.TempDir(),
			Program: (&enginetest.Box{}).Program,
			Used:    podusage.Total{CPUSeconds: new(0.05)},
			Store: map[string]engine.Image{
				"localhost/box:1": {Ref: "localhost/box:1", ID: "sha256:1", Passwd: []byte("root:x:0:0::/:\n")},
			},
		}
		return enginetest.Subject{
			Engine: e, Present: "localhost/box:1", Absent: "localhost/none:1",
			Config: func(t *testing.T, podUID, name string, args ...string) engine.ContainerConfig {
				return engine.ContainerConfig{
					ID: engine.ContainerID(podUID, name, time.Unix(0, 0), 0), PodUID: podUID, Name: name, Image: "localhost/box:1",
					Labels: map[string]string{"suite": "conform"}, LogPath: filepath.Join(t.TempDir(), "0.log"),
					Spec: &specs.Spec{Process: &specs.Process{Args: append([]string{"/bin/box"}, args...)}},
				}
			},
			Reopen: func(_ *testing.T, between func()) engine.Engine {
				between()
				return e
			},
		}
	})
}
