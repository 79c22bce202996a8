package ttrpc

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	headerSize = 10
	maxSize    = 4 << 20 // ttrpc's own limit

	request  = 1
	response = 2
)

// frame is a message of ttrpc.
type frame struct {
	stream uint32
	kind   byte
	data   []byte
}

// readFrame reads a message. Of one that is too large there is no data, and ok is false.
func readFrame(r io.Reader) (f frame, ok bool, err error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return f, false, err
	}
	size := binary.BigEndian.Uint32(h[:4])
	f = frame{stream: binary.BigEndian.Uint32(h[4:8]), kind: h[8]}
	if size > maxSize {
		_, err = io.CopyN(io.Discard, r, int64(size))
		return f, false, err
	}
	f.data = make([]byte, size)
	_, err = io.ReadFull(r, f.data)
	return f, true, err
}

func writeFrame(w io.Writer, f frame) error {
	if len(f.data) > maxSize {
		return fmt.Errorf("the message has %d bytes, more than %d", len(f.data), maxSize)
	}
	b := make([]byte, headerSize, headerSize+len(f.data))
	binary.BigEndian.PutUint32(b[:4], uint32(len(f.data)))
	binary.BigEndian.PutUint32(b[4:8], f.stream)
	b[8] = f.kind
	_, err := w.Write(append(b, f.data...))
	return err
}

// call is ttrpc.Request.
type call struct {
	service, method string
	payload         []byte
	timeout         int64 // nanoseconds; 0 without one
}

func (c *call) fields() []field {
	return []field{{1, &c.service}, {2, &c.method}, {3, &c.payload}, {4, &c.timeout}}
}

// reply is ttrpc.Response.
type reply struct {
	status  Error
	payload []byte
}

func (r *reply) fields() []field { return []field{{1, &r.status}, {2, &r.payload}} }

// The codes of errors that containerd understands.
const (
	Unknown            uint32 = 2
	InvalidArgument    uint32 = 3
	DeadlineExceeded   uint32 = 4
	NotFound           uint32 = 5
	AlreadyExists      uint32 = 6
	ResourceExhausted  uint32 = 8
	Unavailable        uint32 = 14
	FailedPrecondition uint32 = 9
	Unimplemented      uint32 = 12
)

// Error is an error with a code: google.rpc.Status.
type Error struct {
	Code    uint32
	Message string
}

func (e *Error) fields() []field { return []field{{1, &e.Code}, {2, &e.Message}} }

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf returns an error with a code.
func Errorf(code uint32, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Errorf(format, args...).Error()}
}
