// Package engine defines what a container engine does, and its containers, images and events.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/runonce/runonce/internal/podusage"
)

// ErrNotFound says that an image or container does not exist. Engines wrap it.
var ErrNotFound = errors.New("not found")

// PlatformError says that there is an image, but not for the platform of this machine. For the local store
// that is an ErrNotFound.
type PlatformError struct {
	Of  []string // the platforms that it is for, as far as they are known, such as linux/arm64
	Own string   // that of this machine
}

func (e *PlatformError) Error() string {
	if len(e.Of) == 0 {
		return "it is not for " + e.Own
	}
	return fmt.Sprintf("it is for %s, not for %s", strings.Join(e.Of, ", "), e.Own)
}

// Engine starts, watches and removes containers. It knows nothing of pods. Every method is
// safe for concurrent use and safe to repeat after an error or after a crash of the process.
// An error that no retry can help has a method Permanent() bool that returns true.
type Engine interface {
	// Start creates the container and returns once its process runs. A container with the
	// same ID that does not run is replaced; one that runs is an error. After an error nothing
	// of the container is left.
	Start(ctx context.Context, c ContainerConfig) error
	// Stop sends the signal, waits for the exit for the grace period, then sends SIGKILL and
	// waits for the exit. The container's record stays, with its exit code. A container that
	// is absent or has exited is no error. When ctx is done, also before the call, the signal is
	// still sent, but nothing is waited for.
	Stop(ctx context.Context, id string, sig syscall.Signal, grace time.Duration) error
	// Remove removes the container with its snapshot and its exit record, and kills its
	// process first. A container that is absent is no error. Log files stay.
	Remove(ctx context.Context, id string) error
	// Containers returns the containers of one pod in order of creation, or of all pods
	// when podUID is empty. Exit codes are right also for containers that ended while no
	// process of ours ran.
	Containers(ctx context.Context, podUID string) ([]Container, error)
	// Exec runs a command inside a running container and returns its exit code and the
	// first MaxExecOutput bytes of its output.
	Exec(ctx context.Context, id string, command []string) (ExecResult, error)
	// ExecStreams runs a command inside a running container, with streams, and returns its exit
	// code. The command is killed when ctx is done. It is not repeated after an error.
	ExecStreams(ctx context.Context, id string, c Command, s Streams) (int32, error)
	// Attach takes part in the input and the output of a container with an input or a terminal, which runs or is about
	// to start: Stdin goes to its first process, and what that writes from now on to Stdout and Stderr. It returns nil when the output
	// has ended.
	Attach(ctx context.Context, id string, s Streams) error
	// Files opens the file system of a container as its own processes see it, with its volumes, or
	// saw it when they ended: then without the file systems of the kernel and those in memory
	// only. It is opened for reading, or also for writing. The caller closes it.
	Files(ctx context.Context, id string, write bool) (Files, error)
	// Events sends an event for each container that starts, exits or runs out of memory,
	// until ctx is done; then the channel is closed. The receiver must not stop reading.
	Events(ctx context.Context) (<-chan Event, error)
	// Usage returns how many bytes the container has written to its own layer.
	Usage(ctx context.Context, id string) (int64, error)

	// Image returns the image with that name in the local store, or ErrNotFound.
	Image(ctx context.Context, ref string) (Image, error)
	// Pull fetches the image from its registry and unpacks it. The credentials are tried
	// in order, before the engine's own.
	Pull(ctx context.Context, ref string, credentials ...Credential) (Image, error)
	// Resolve asks the registry for the digest of the image, with credentials as for Pull.
	Resolve(ctx context.Context, ref string, credentials ...Credential) (digest string, err error)
	// Mount mounts the content of an image of the local store read-only on the directory. It
	// is kept under a key until Release; what is already mounted under that key stays.
	Mount(ctx context.Context, ref, key, dir string) error
	// CopyFromImage copies directories of an image of the local store, with owners and modes, to
	// others that exist: dirs has those, by the paths in the image. One that the image does not
	// have is left out.
	CopyFromImage(ctx context.Context, ref string, dirs map[string]string) error
	// Release releases what Mount has kept, after it was unmounted. An unknown key is no
	// error.
	Release(ctx context.Context, key string) error
}

// ContainerConfig is everything an Engine needs to start one container.
type ContainerConfig struct {
	ID      string // unique in the engine's namespace; see ContainerID
	PodUID  string // groups the containers of a pod
	Name    string // the container's name in the pod
	Attempt int    // 0 for the first instance, then one more for each restart
	Image   string // image reference as Images returned it
	Spec    *specs.Spec
	// Pause asks for the process that holds a pod's shared process namespace, a program of the
	// engine without an image and a log.
	Pause bool
	// Stdin asks for an input that stays open, also if nobody attaches to it; without it the process reads EOF
	// at once. StdinOnce has it end with the first one who has attached to it.
	Stdin, StdinOnce bool
	// Created, if set, is called when the container exists and its process is about to start: who attaches to it
	// then misses nothing. It is called again if the start is tried again.
	Created func()
	// RuntimeHandler is the handler of the pod's RuntimeClass, empty for the default.
	RuntimeHandler string
	// Runtime is the OCI runtime of the default handler, as the first container of the pod has it. If it is empty, or not
	// installed any more, the engine's is used.
	Runtime string
	// DefaultSeccomp asks for the engine's default seccomp profile, which depends on the
	// capabilities in Spec.
	DefaultSeccomp bool

	LogPath string // CRI-format log file; its directory exists
	Labels  map[string]string
	// Last is the exit of the instance before this one, nil for the first. The engine keeps it
	// with the container, so that it outlives this process.
	Last *Exit
	// RunFile is the file of a run that removes the pod at its end (package flock). If it is killed, the engine's processes
	// beside the container see to that. Empty for none.
	RunFile string
}

// State is what the engine knows of a container's process.
type State string

// The states of a container. Unknown: the process is gone and its exit code is lost
// (the machine was rebooted, say).
const (
	StateCreated State = "Created"
	StateRunning State = "Running"
	StateExited  State = "Exited"
	StateUnknown State = "Unknown"
)

// Container is one instance of a container as the engine sees it.
type Container struct {
	ID      string
	PodUID  string
	Name    string
	Attempt int
	Image   string // reference
	ImageID string // of the image that it was made from
	// ImageDigest is that of the image's manifest or index, empty when it is not known.
	ImageDigest string
	LogPath     string
	Labels      map[string]string
	State       State
	PID         int // of the first process on the host; 0 before it is known and after it has ended
	CreatedAt   time.Time
	StartedAt   time.Time // zero until it runs
	Exit        Exit      // meaningful when State is StateExited
	Last        *Exit
}

// Exit is how one instance of a container has exited. It is stored as JSON in the engine's
// records, so fields may be added but not renamed.
type Exit struct {
	ContainerID string `json:"containerID"`
	Attempt     int    `json:"attempt"`
	ExitCode    int32  `json:"exitCode"`
	OOMKilled   bool   `json:"oomKilled,omitempty"`
	// Usage is what the instance has used, as far as the engine tells.
	Usage podusage.Total `json:"usage,omitzero"`
	// Reason is the status's reason if it does not follow from the rest.
	Reason     string    `json:"reason,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	// Message is the container's termination message, at most 4096 bytes.
	Message string `json:"message,omitempty"`
	LogPath string `json:"logPath,omitempty"`
}

// MaxExecOutput bounds the output kept from Exec, in bytes (kubelet prober: 10 KiB).
const MaxExecOutput = 10 << 10

// ExecResult is the outcome of a command that ran inside a container.
type ExecResult struct {
	ExitCode int32
	Output   []byte // stdout and stderr interleaved, at most MaxExecOutput
}

// Command is one that runs inside a container besides the container's own process. What it does not say is as
// for that process.
type Command struct {
	Args []string
	Env  []string // more variables, as KEY=VALUE
	Dir  string   // its working directory, "" for the container's
	User *specs.User
}

// Streams are those of a command that runs inside a container, or of one who attaches to the container itself.
type Streams struct {
	Stdin          io.Reader // nil for none
	Stdout, Stderr io.Writer // nil drops what is written
	// TTY gives the command a terminal. It then writes to Stdout only.
	TTY bool
	// Size is that of the terminal from the beginning; zero if it is not known. Resize gets the sizes; nil for none.
	Size   Size
	Resize <-chan Size
	// Starting, if set, is called before the command starts, with what the engine knows it by, if the
	// command would outlive this process. If it fails, the command does not start.
	Starting func(container, id string) error
	// Started, if set, is called once the command runs, or who attaches takes part.
	Started func()
}

// Files is the file system of a container.
type Files struct {
	// Root is a handle (O_PATH) of its root directory. Paths must be resolved below it: links in
	// the container are made by others (openat2(2), RESOLVE_IN_ROOT).
	Root *os.File
	// In a user namespace, users and groups from 0 on are the host's from FirstID on, UserIDs of
	// them. Files that still belong to others are those of the image.
	UserNS  bool
	FirstID uint32
	// Close releases it. Root must not be used any more.
	Close func() error
}

// Size is the size of a terminal in characters.
type Size struct{ Width, Height uint16 }

// EventType says what happened to a container.
type EventType string

// The events that an engine reports.
const (
	EventStarted EventType = "Started"
	EventExited  EventType = "Exited"
	EventOOM     EventType = "OOM"
)

// Event is a change of a container's state.
type Event struct {
	Type        EventType
	ContainerID string
	PodUID      string // empty when it is not known
}

// Credential is a user of a registry.
type Credential struct{ User, Password string }

// Image is what the spec of a container needs to know of its image.
type Image struct {
	Ref        string // normalised reference, as the image store knows it
	ID         string // digest of the image configuration, "sha256:..."
	Digest     string // digest of the manifest or index that Ref names
	Size       int64  // bytes, unpacked layers not counted
	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string // "", "uid", "name", "uid:gid", ...
	WorkingDir string
	StopSignal string
	Volumes    []string // the directories that it declares as volumes, absolute, in order
	// Healthcheck is that of an image in Docker's format, nil if it has none.
	Healthcheck *Healthcheck
	// Platform is the one that it says it is for, such as linux/arm64, if that is not this machine's:
	// it only runs where the kernel can emulate it.
	Platform string
	// Passwd and Group are the image's /etc/passwd and /etc/group, nil when it has none.
	// They turn names into ids without a mounted root filesystem.
	Passwd []byte
	Group  []byte
}

// Healthcheck says how an image's containers are found to be healthy, in the words of Docker.
type Healthcheck struct {
	Test              []string // NONE, CMD with a command, or CMD-SHELL with a text for the shell
	Interval, Timeout time.Duration
	Retries           int
	Shell             []string `json:"-"` // the image's, nil for the default
}

// Sandbox is what the containers of a pod share. A namespace path is empty when the pod uses
// the host's.
type Sandbox struct {
	NetNS string `json:"netns,omitempty"`
	IPCNS string `json:"ipcns,omitempty"`
	UTSNS string `json:"utsns,omitempty"`
	// PIDNS is the pid namespace of a pod with shareProcessNamespace. It ends with its first
	// process, and so is not recorded.
	PIDNS string `json:"-"`
	// UserNS is the user namespace of a pod with hostUsers: false, which owns the others. Its
	// users and groups from 0 on are the host's from FirstID on, UserIDs of them.
	UserNS  string `json:"userns,omitempty"`
	FirstID uint32 `json:"firstID,omitempty"`
	// Hostname is the name that the containers see.
	Hostname string `json:"hostname"`
	// Domain is that of a pod with a subdomain.
	Domain string `json:"domain,omitempty"`
	// IPs are the pod's addresses, the primary one first. A pod on the host network has
	// the host's.
	IPs []string `json:"ips,omitempty"`
	// Annotations are what a cluster would have added to the pod: its network status, if it
	// has joined several networks.
	Annotations map[string]string `json:"annotations,omitempty"`
	// BootID identifies the boot of the machine in which it was made. A reboot ends it.
	BootID string `json:"bootID,omitempty"`
}

// UserIDs is how many user IDs, and group IDs, a pod with a user namespace of its own has
// (kubeletconfig.DefaultKubeletUserNamespacesIDsPerPod).
const UserIDs = 65536
