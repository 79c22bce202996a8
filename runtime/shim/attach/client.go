package attach

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Streams are those of a client. An output that is nil is dropped.
type Streams struct {
	Stdin          io.Reader // nil for none
	Stdout, Stderr io.Writer
	// Begun, if set, is called when the client takes part, and InputEnded when the end of Stdin was passed on.
	Begun, InputEnded func()
}

// maxFrame bounds the size of a frame, in bytes, against a server that is none of ours.
const maxFrame = 1 << 20

// ErrLost is the error of a client that was disconnected before the output has ended.
var ErrLost = errors.New("disconnected: the output was not read for too long, or the shim has ended")

// Connect takes part in the input and output of the container whose socket has the path, until its output ends or ctx is
// done. The end of Stdin is passed on.
func Connect(ctx context.Context, path string, s Streams) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	hello := byte(0)
	if s.Stdin != nil {
		hello |= wantInput
	}
	if _, err := conn.Write([]byte{hello}); err != nil {
		return err
	}
	if s.Stdin != nil {
		go func() {
			// A reader cannot be interrupted: it ends with the process, or with what comes next.
			if _, err := io.Copy(conn, s.Stdin); err == nil {
				closeWrite(conn)
				if s.InputEnded != nil {
					s.InputEnded()
				}
			}
		}()
	}
	err = receive(conn, map[byte]io.Writer{Stdout: s.Stdout, Stderr: s.Stderr}, s.Begun)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(*net.UnixConn); ok {
		_ = half.CloseWrite()
	}
}

// receive copies frames until the connection ends.
func receive(conn io.Reader, to map[byte]io.Writer, begin func()) error {
	header := make([]byte, headerSize)
	for {
		if _, err := io.ReadFull(conn, header); err != nil {
			return ErrLost
		}
		switch {
		case header[0] == end:
			return nil
		case header[0] == begun && begin != nil:
			begin()
		}
		size := int64(binary.BigEndian.Uint32(header[1:]))
		if size > maxFrame {
			return fmt.Errorf("got a frame of %d bytes", size)
		}
		w := to[header[0]]
		if w == nil {
			w = io.Discard
		}
		if _, err := io.CopyN(w, conn, size); err != nil {
			return err
		}
	}
}
