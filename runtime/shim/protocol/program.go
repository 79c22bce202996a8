package protocol

import "fmt"

const (
	// Program is the name of the shim's program.
	Program = "runonce-shim"
	// PackedName is the name of the compressed program in the main program.
	PackedName = Program + ".zst"
	// SumName is the name of the file with the program's Sum in the main program.
	SumName = Program + ".sum"
)

const (
	// TaskService is the name of the service of the task API.
	TaskService = "containerd.task.v3.Task"
	// TiedExec is a method that this shim adds to the task API: Exec for a process that the shim kills, with what descends
	// from it, when the connection ends over which it is started. Other shims, and this one in earlier versions, do not
	// implement it.
	TiedExec = "TiedExec"
)

// Sum identifies an unpacked program.
type Sum struct {
	SHA256 string
	Size   int64
}

// String returns the sum as the file SumName holds it.
func (s Sum) String() string { return fmt.Sprintf("%s %d\n", s.SHA256, s.Size) }
