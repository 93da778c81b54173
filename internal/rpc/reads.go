package rpc

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/token-budget-arbiter/tba/arbiter"
)

// mountReads serves the reads of Admin as plain GETs: query parameters are the fields of the request, the body is the response as JSON.
func (s *Server) mountReads(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/status", read(s.admin.GetStatus))
	mux.HandleFunc("GET /api/v1/budgets", read(s.admin.ListBudgets))
	mux.HandleFunc("GET /api/v1/providers", read(s.admin.ListProviders))
	mux.HandleFunc("GET /api/v1/leases", read(s.admin.ListLeases))
	mux.HandleFunc("GET /api/v1/classes", read(s.admin.ListClasses))
	mux.HandleFunc("GET /api/v1/events", read(s.admin.ListEvents))
	mux.HandleFunc("GET /api/v1/usage", read(s.admin.ReportUsage))
}

// read makes a GET of one call of Admin.
func read[I any, PI interface {
	*I
	proto.Message
}, O proto.Message](call func(context.Context, PI) (O, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in := PI(new(I))
		if err := fromQuery(in.ProtoReflect(), r.URL.Query()); err != nil {
			writeProblem(w, r, err)
			return
		}
		out, err := call(r.Context(), in)
		if err != nil {
			writeProblem(w, r, err)
			return
		}
		body, err := toJSON.Marshal(out)
		if err != nil {
			writeProblem(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(body, '\n')) // a client that is gone cannot be told
	}
}

// fromQuery sets scalar and repeated string fields by their proto or JSON name. An unknown name or a bad value is a fault.
func fromQuery(m protoreflect.Message, query url.Values) *arbiter.Error {
	fields := m.Descriptor().Fields()
	for name, values := range query {
		f := fields.ByName(protoreflect.Name(name))
		if f == nil {
			f = fields.ByJSONName(name)
		}
		if f == nil {
			return invalid("query", "unknown_parameter", "%q is no parameter of this path: its parameters are those of %s", cut(name), m.Descriptor().Name())
		}
		for _, value := range values {
			v, err := scalar(f, value)
			if err != nil {
				return invalid(string(f.Name()), "bad_value", "%q is no %s", cut(value), f.Kind())
			}
			if f.IsList() {
				m.Mutable(f).List().Append(v)
			} else {
				m.Set(f, v)
			}
		}
	}
	return nil
}

func scalar(f protoreflect.FieldDescriptor, value string) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(value), nil
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(value)
		return protoreflect.ValueOfBool(b), err
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(value, 10, 32)
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.Int64Kind:
		n, err := strconv.ParseInt(value, 10, 64)
		return protoreflect.ValueOfInt64(n), err
	case protoreflect.Uint64Kind:
		n, err := strconv.ParseUint(value, 10, 64)
		return protoreflect.ValueOfUint64(n), err
	}
	return protoreflect.Value{}, strconv.ErrSyntax
}
