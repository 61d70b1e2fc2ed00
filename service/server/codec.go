package server

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/api"
)

// maxFields is how many fields and items of lists a request may have. The largest one that can be
// answered has 3 for each of MaxRefs updates, and as many refs of a lock. Without this limit a body
// could become a message of fifty times its size: two bytes make an empty update.
const maxFields = 8 * api.MaxRefs

// codecs returns codecs that decode no request with more than maxFields fields.
func codecs() []connect.HandlerOption {
	return []connect.HandlerOption{connect.WithCodec(protoCodec{}), connect.WithCodec(jsonCodec{"json"}), connect.WithCodec(jsonCodec{"json; charset=utf-8"})}
}

var errFields = fmt.Errorf("%w request: it has more than %d fields", refdb.ErrTooMany, maxFields)

var errUnknownField = fmt.Errorf("%w request: it has a field that this server does not know: a newer client needs a newer server", refdb.ErrInvalid)

type protoCodec struct{}

func (protoCodec) Name() string { return "proto" }

func (protoCodec) Marshal(message any) ([]byte, error) {
	m, err := messageOf(message)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(m)
}

func (protoCodec) Unmarshal(data []byte, message any) error {
	m, err := messageOf(message)
	if err != nil {
		return err
	}
	if left := maxFields; !countFields(data, m.ProtoReflect().Descriptor(), &left) {
		return errFields
	}
	if err := proto.Unmarshal(data, m); err != nil {
		return err
	}
	if hasUnknown(m.ProtoReflect()) {
		return errUnknownField
	}
	return nil
}

// hasUnknown reports whether a message, or one within it, has a field that this version does not know, or
// knows with another type. A server that ignored a field of a newer client, such as another condition of an
// update, would do more than it was asked for.
func hasUnknown(m protoreflect.Message) (found bool) {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil:
		case f.IsList():
			for i := 0; i < v.List().Len() && !found; i++ {
				found = hasUnknown(v.List().Get(i).Message())
			}
		case !f.IsMap(): // no request has a map
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}

// countFields decrements left for each field, and returns false below 0. It leaves errors in malformed
// data to proto.Unmarshal.
func countFields(data []byte, d protoreflect.MessageDescriptor, left *int) bool {
	for len(data) > 0 {
		if *left--; *left < 0 {
			return false
		}
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return true
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return true
		}
		if field := d.Fields().ByNumber(number); field != nil && field.Message() != nil && kind == protowire.BytesType {
			if inner, _ := protowire.ConsumeBytes(data); !countFields(inner, field.Message(), left) {
				return false
			}
		}
		data = data[n:]
	}
	return true
}

type jsonCodec struct{ name string }

func (c jsonCodec) Name() string { return c.name }

func (jsonCodec) Marshal(message any) ([]byte, error) {
	m, err := messageOf(message)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(m)
}

func (jsonCodec) Unmarshal(data []byte, message any) error {
	m, err := messageOf(message)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return fmt.Errorf("%w request: it is empty: send at least {}", refdb.ErrInvalid)
	}
	if countItems(data) > maxFields {
		return errFields
	}
	// Without a misspelt "under" an update would not be fenced. So unknown fields are refused.
	if err := protojson.Unmarshal(data, m); err != nil {
		return fmt.Errorf("%w request: %.300s", refdb.ErrInvalid, err.Error()) // it quotes the request
	}
	return nil
}

// countItems returns an upper bound of the number of fields and list items of JSON: each of them
// follows a comma or an opening bracket.
func countItems(data []byte) (n int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '{' || c == '['):
			n++
		}
	}
	return n
}

func messageOf(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", message)
	}
	return m, nil
}
