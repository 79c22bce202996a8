// Package ttrpc has as much of containerd's protocol between itself and its shims as a shim
// needs: the framing of ttrpc, protobuf, and the messages. It links no generated code: that
// would cost each start of a shim more than all the rest.
package ttrpc

import (
	"encoding/binary"
	"errors"
	"time"
)

// Message is a protobuf message.
type Message interface {
	// Fields returns the fields that this program knows; others are skipped.
	fields() []field
}

// field is a field of a message.
type field struct {
	Number uint64
	// Value is a pointer to a string, []byte, bool, uint32, int64, []string or time.Time (a
	// google.protobuf.Timestamp), or a Message, or a pointer to a List.
	Value any
}

// List is a repeated field of messages.
type List[T any, M interface {
	*T
	Message
}] []T

func (l *List[T, M]) add() Message {
	var zero T
	*l = append(*l, zero)
	return M(&(*l)[len(*l)-1])
}

func (l *List[T, M]) all() []Message {
	all := make([]Message, len(*l))
	for i := range *l {
		all[i] = M(&(*l)[i])
	}
	return all
}

type repeated interface {
	add() Message
	all() []Message
}

// The wire types of protobuf.
const (
	varint  = 0
	fixed64 = 1
	length  = 2
	fixed32 = 5

	maxNumber = 1<<29 - 1
)

var errMalformed = errors.New("malformed protobuf message")

// Marshal encodes a message.
func Marshal(m Message) []byte {
	var b []byte
	for _, f := range m.fields() {
		b = f.append(b)
	}
	return b
}

func (f field) append(b []byte) []byte {
	switch v := f.Value.(type) {
	case *string:
		return f.appendBytes(b, *v)
	case *[]byte:
		return f.appendBytes(b, string(*v))
	case *bool:
		if *v {
			return f.appendVarint(b, 1)
		}
	case *uint32:
		return f.appendVarint(b, uint64(*v))
	case *int64:
		return f.appendVarint(b, uint64(*v))
	case *[]string:
		for _, s := range *v {
			b = f.appendElement(b, s)
		}
	case *time.Time:
		if !v.IsZero() {
			return f.appendElement(b, string(Marshal(&timestamp{v.Unix(), int64(v.Nanosecond())})))
		}
	case Message:
		return f.appendBytes(b, string(Marshal(v)))
	case repeated:
		for _, m := range v.all() {
			b = f.appendElement(b, string(Marshal(m)))
		}
	}
	return b
}

func (f field) appendVarint(b []byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, f.Number<<3|varint), v)
}

func (f field) appendBytes(b []byte, v string) []byte {
	if v == "" {
		return b
	}
	return f.appendElement(b, v)
}

// appendElement also appends what is empty.
func (f field) appendElement(b []byte, v string) []byte {
	b = binary.AppendUvarint(b, f.Number<<3|length)
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// Unmarshal decodes a message.
func Unmarshal(data []byte, m Message) error {
	fields := m.fields()
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 || key>>3 == 0 || key>>3 > maxNumber {
			return errMalformed
		}
		number, content, err := value(data[n:], key&7)
		if err != nil {
			return err
		}
		data = content.rest
		for _, f := range fields {
			if f.Number != key>>3 {
				continue
			}
			if err := f.set(key&7, number, content.bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// content is the content of a field, and what follows it.
type content struct{ bytes, rest []byte }

// value splits off a value of a wire type.
func value(data []byte, kind uint64) (number uint64, c content, err error) {
	size, skip := uint64(0), 0
	switch kind {
	case varint, length:
		if number, skip = binary.Uvarint(data); skip <= 0 {
			return 0, c, errMalformed
		}
		if kind == length {
			size = number
		}
	case fixed64:
		size = 8
	case fixed32:
		size = 4
	default:
		return 0, c, errMalformed
	}
	data = data[skip:]
	if size > uint64(len(data)) {
		return 0, c, errMalformed
	}
	return number, content{data[:size], data[size:]}, nil
}

// set sets the field, unless it has another type in this program.
func (f field) set(kind, number uint64, data []byte) error {
	if kind == varint {
		switch v := f.Value.(type) {
		case *bool:
			*v = number != 0
		case *uint32:
			*v = uint32(number)
		case *int64:
			*v = int64(number)
		}
		return nil
	}
	if kind != length {
		return nil
	}
	switch v := f.Value.(type) {
	case *string:
		*v = string(data)
	case *[]byte:
		*v = append([]byte(nil), data...)
	case *[]string:
		*v = append(*v, string(data))
	case *time.Time:
		var t timestamp
		if err := Unmarshal(data, &t); err != nil {
			return err
		}
		*v = time.Unix(t.seconds, t.nanos).UTC()
	case Message:
		return Unmarshal(data, v)
	case repeated:
		return Unmarshal(data, v.add())
	}
	return nil
}

// timestamp is google.protobuf.Timestamp.
type timestamp struct{ seconds, nanos int64 }

func (t *timestamp) fields() []field { return []field{{1, &t.seconds}, {2, &t.nanos}} }
