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

// TiedExec begins the IDs of processes that the shim kills, with what descends from them, when the connection ends over
// which they were started.
const TiedExec = "tied-"

// Sum identifies an unpacked program.
type Sum struct {
	SHA256 string
	Size   int64
}

// String returns the sum as the file SumName holds it.
func (s Sum) String() string { return fmt.Sprintf("%s %d\n", s.SHA256, s.Size) }
