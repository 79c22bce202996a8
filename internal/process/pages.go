package process

import (
	"encoding/binary"
	"io"
	"os"
	"syscall"
)

// DropCode unmaps the code and the constants of the program. What is used again is mapped again, from
// the page cache. Programs with hundreds of packages have touched half of their code before they
// have done anything, and will not use most of that again. Where it cannot work it does nothing.
func DropCode() {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return
	}
	defer func() { _ = program.Close() }()
	for _, s := range segments(program) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, s.start, s.size, syscall.MADV_DONTNEED)
	}
}

// segment is a range of whole pages.
type segment struct{ start, size uintptr }

// The parts of ELF that segments knows, for 64 bits; see elf(5).
const (
	headerSize        = 64
	programHeaderSize = 56
	fixedAddress      = 2 // e_type ET_EXEC
	load              = 1 // p_type PT_LOAD
	writable          = 2 // p_flags PF_W
)

// segments returns the parts of a program that are mapped from its file and never written to, not
// even by the dynamic linker. It knows none of a program without a fixed address.
func segments(program io.ReaderAt) []segment {
	header := make([]byte, headerSize)
	if _, err := program.ReadAt(header, 0); err != nil {
		return nil
	}
	native := binary.NativeEndian
	if string(header[:5]) != "\x7fELF\x02" || native.Uint16(header[16:]) != fixedAddress || native.Uint16(header[54:]) != programHeaderSize {
		return nil
	}
	table := make([]byte, programHeaderSize*int(native.Uint16(header[56:])))
	if _, err := program.ReadAt(table, int64(native.Uint64(header[32:]))); err != nil {
		return nil
	}
	page := uint64(os.Getpagesize())
	var all []segment
	for ; len(table) > 0; table = table[programHeaderSize:] {
		if native.Uint32(table) != load || native.Uint32(table[4:])&writable != 0 {
			continue
		}
		address, size := native.Uint64(table[16:]), native.Uint64(table[32:])
		start := address &^ (page - 1)
		all = append(all, segment{uintptr(start), uintptr((address + size - start) &^ (page - 1))})
	}
	return all
}
