package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A session carries many small frames in each message. The generated code would make four objects of every frame on its way in and out, and
// they would be most of what a session costs. So the envelope, SessionRequest and SessionResponse with their frames, is read and written here,
// byte for byte what the generated code would do, and only the calls inside it are messages, reused from frame to frame.

// Field numbers of SessionRequest, SessionResponse and their frames.
const (
	fieldFrames = 1 // of both messages
	fieldID     = 1 // of both frames

	fieldRequest   = 2
	fieldCommit    = 3
	fieldRelease   = 4
	fieldExtend    = 5
	fieldSignal    = 6
	fieldSubscribe = 7 // of SessionRequest.Frame
	fieldCancel    = 8 // of SessionRequest.Frame
	fieldError     = 7 // of SessionResponse.Frame, and so on

	fieldBackpressure = 8
	fieldRevocation   = 9
	fieldDrain        = 10
)

// sessionCodec is the protobuf codec of gRPC, except that it knows the envelopes of a session and signals that are encoded already.
type sessionCodec struct{ encoding.CodecV2 }

func newSessionCodec() sessionCodec {
	return sessionCodec{encoding.GetCodecV2(protocodec.Name)}
}

func (c sessionCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *framesOut:
		return v.take(), nil
	case *signal:
		return mem.BufferSlice{mem.SliceBuffer(v.wire)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c sessionCodec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*framesIn); ok {
		in.fault = in.read(data) // told by the session: an error here would reach it as text only
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// framesIn is one SessionRequest. Its frames are good until the next one is read.
type framesIn struct {
	buf   []byte
	list  []frameIn
	fault error // of the last message read
}

// frameIn is a frame: its id, which call it has (0: none) and the call's bytes.
type frameIn struct {
	id   uint64
	call protowire.Number
	body []byte
}

var errEnvelope = errors.New("malformed SessionRequest")

func (in *framesIn) read(data mem.BufferSlice) error {
	n := data.Len()
	if cap(in.buf) < n {
		in.buf = make([]byte, n)
	}
	in.buf = in.buf[:n]
	data.CopyTo(in.buf)
	in.list = in.list[:0]
	return fields(in.buf, func(number protowire.Number, kind protowire.Type, _ uint64, body []byte) error {
		if number != fieldFrames || kind != protowire.BytesType {
			return nil
		}
		var f frameIn
		err := fields(body, func(number protowire.Number, kind protowire.Type, n uint64, body []byte) error {
			switch {
			case number == fieldID && kind == protowire.VarintType:
				f.id = n
			case number >= fieldRequest && number <= fieldCancel && kind == protowire.BytesType:
				f.call, f.body = number, body // of several the last one counts
			}
			return nil
		})
		in.list = append(in.list, f)
		return err
	})
}

// fields calls take for each field of a message: number, type, and its varint or bytes.
func fields(b []byte, take func(number protowire.Number, kind protowire.Type, n uint64, body []byte) error) error {
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return errEnvelope
		}
		b = b[size:]
		var n uint64
		var body []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			body, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(number, kind, b)
		}
		if size < 0 {
			return errEnvelope
		}
		b = b[size:]
		if err := take(number, kind, n, body); err != nil {
			return err
		}
	}
	return nil
}

// framesOut gathers the frames of one SessionResponse. The zero value is empty and ready.
type framesOut struct {
	buf   *[]byte
	count int
}

const (
	// outBlock is the first size of a message's buffer, outFull where a message ends: clients accept 256 KiB.
	outBlock = 32 << 10
	outFull  = 192 << 10
)

// add appends a frame with an answer in field number.
func (o *framesOut) add(id uint64, number protowire.Number, answer proto.Message) error {
	if o.buf == nil {
		o.buf = mem.DefaultBufferPool().Get(outBlock)
		*o.buf = (*o.buf)[:0]
	}
	size := proto.Size(answer)
	length := protowire.SizeTag(number) + protowire.SizeBytes(size)
	if id != 0 {
		length += protowire.SizeTag(fieldID) + protowire.SizeVarint(id)
	}
	b := protowire.AppendVarint(protowire.AppendTag(*o.buf, fieldFrames, protowire.BytesType), uint64(length))
	if id != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldID, protowire.VarintType), id)
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(size))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, answer)
	if err != nil {
		return fmt.Errorf("encode frame %d: %w", id, err)
	}
	*o.buf = b
	o.count++
	return nil
}

// full reports whether the message should be sent before more is added.
func (o *framesOut) full() bool { return o.buf != nil && len(*o.buf) >= outFull }

// take hands the bytes to the transport, which gives them back to the pool once they are written. Afterwards o is empty.
func (o *framesOut) take() mem.BufferSlice {
	if o.buf == nil {
		return nil
	}
	out := mem.BufferSlice{mem.NewBuffer(o.buf, mem.DefaultBufferPool())}
	o.buf, o.count = nil, 0
	return out
}
