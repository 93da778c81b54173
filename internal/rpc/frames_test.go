package rpc

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	tbav1 "github.com/token-budget-arbiter/tba/internal/gen/tba/v1"
)

// callField is the field number of a frame's call, read by reflection.
func callField(f *tbav1.SessionRequest_Frame) int {
	m := f.ProtoReflect()
	if d := m.WhichOneof(m.Descriptor().Oneofs().ByName("call")); d != nil {
		return int(d.Number())
	}
	return 0
}

// FuzzFrames: the envelope is read as the generated code reads it.
func FuzzFrames(f *testing.F) {
	for _, m := range []*tbav1.SessionRequest{
		{},
		{Frames: []*tbav1.SessionRequest_Frame{{}, {Id: 1}}},
		{Frames: []*tbav1.SessionRequest_Frame{
			requestFrame(1, &tbav1.LeaseRequest{AgentId: "a", EstimatedTokens: 10}), commitFrame(1<<63, "x", 3), cancelFrame(4, 3),
			{Id: 9, Call: &tbav1.SessionRequest_Frame_Subscribe{Subscribe: &tbav1.BackpressureSubscription{}}},
		}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, 0x78, 1)) // an unknown field
		f.Add(append(b, 0x0a, 200))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in framesIn
		ours := in.read(mem.BufferSlice{mem.SliceBuffer(data)})
		var m tbav1.SessionRequest
		if err := proto.Unmarshal(data, &m); err != nil {
			return // what is broken inside a call is found later
		}
		if ours != nil || len(in.list) != len(m.GetFrames()) {
			t.Fatalf("%v, %d frames, want %d", ours, len(in.list), len(m.GetFrames()))
		}
		for i, f := range m.GetFrames() {
			if in.list[i].id != f.GetId() || int(in.list[i].call) != callField(f) {
				t.Errorf("frame %d: %+v, want %v", i, in.list[i], f)
			}
		}
	})
}

func TestFramesOut(t *testing.T) {
	t.Parallel()
	var out framesOut
	answers := []struct {
		id    uint64
		field protowire.Number
		m     proto.Message
	}{
		{1, fieldRequest, &tbav1.LeaseResponse{LeaseId: "x", LeaseToken: make([]byte, 300)}}, {2, fieldCommit, &tbav1.CommitResponse{}},
		{1 << 63, fieldError, &tbav1.RequestError{Code: 1}}, {0, fieldRevocation, &tbav1.Revocation{LeaseId: "y"}},
		{7, fieldBackpressure, &tbav1.BackpressureSignal{ProviderHeadrooms: map[string]float64{"a": 1, "b": 0.5}}}, {0, fieldDrain, &tbav1.DrainNotice{}},
	}
	for _, a := range answers {
		if err := out.add(a.id, a.field, a.m); err != nil {
			t.Fatal(err)
		}
	}
	data := out.take()
	var m tbav1.SessionResponse
	if err := proto.Unmarshal(data.Materialize(), &m); err != nil || len(m.GetFrames()) != len(answers) {
		t.Fatal(err, &m)
	}
	data.Free()
	for i, f := range m.GetFrames() {
		r := f.ProtoReflect()
		d := r.WhichOneof(r.Descriptor().Oneofs().ByName("answer"))
		if f.GetId() != answers[i].id || d.Number() != answers[i].field || !proto.Equal(r.Get(d).Message().Interface(), answers[i].m) {
			t.Errorf("frame %d: %v", i, f)
		}
	}
	if out.buf != nil || out.take() != nil {
		t.Error("not empty after take")
	}
}
