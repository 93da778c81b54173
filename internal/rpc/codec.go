package rpc

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec is the JSON of the HTTP port: names as in the proto, default values written (GRANTED is 0), unknown fields refused because a
// misspelled limit must not be a missing one. Connect's own codec does neither.
type jsonCodec struct{ name string }

var (
	toJSON   = protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}
	fromJSON = protojson.UnmarshalOptions{}
)

func (c jsonCodec) Name() string { return c.name }

func (jsonCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T as JSON: it is not a protobuf message", message)
	}
	return toJSON.Marshal(m)
}

func (jsonCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return dst, fmt.Errorf("encode %T as JSON: it is not a protobuf message", message)
	}
	return toJSON.MarshalAppend(dst, m)
}

func (jsonCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("decode JSON into %T: it is not a protobuf message", message)
	}
	if len(data) == 0 {
		return errors.New("the body is empty: send a JSON object, {} at least")
	}
	if err := fromJSON.Unmarshal(data, m); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	return nil
}
