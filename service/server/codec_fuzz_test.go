package server

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
)

// A request that is accepted has only known fields, and is the same whichever way it is encoded again.
func FuzzCodecs(f *testing.F) {
	methods := refdbv1.File_refdb_v1_refdb_proto.Services().ByName("RefdbService").Methods()
	for i := range methods.Len() {
		f.Add(uint8(i), []byte(`{"project":"p","refs":["a",null,""],"updates":[{},{"ref":"x"}],"leaseTime":"1.5s"}`))
		f.Add(uint8(i), []byte(`{"lock":{"project":"p","refs":["a"],"owner":"/ci/x","token":"-1"}}`))
		f.Add(uint8(i), []byte("\n\x01p\x12\x01a\x1a\x02\x08\x01\x22\x00"))
	}
	f.Fuzz(func(t *testing.T, method uint8, data []byte) {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(methods.Get(int(method) % methods.Len()).Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		for name, codec := range map[string]interface {
			Marshal(any) ([]byte, error)
			Unmarshal([]byte, any) error
		}{"proto": protoCodec{}, "json": jsonCodec{"json"}} {
			m := kind.New().Interface()
			if codec.Unmarshal(data, m) != nil {
				continue
			}
			if hasUnknown(m.ProtoReflect()) {
				t.Errorf("%s: unknown fields in %v", name, m)
			}
			again := kind.New().Interface()
			if text, err := (protoCodec{}).Marshal(m); err != nil || (protoCodec{}).Unmarshal(text, again) != nil || !proto.Equal(m, again) {
				t.Errorf("%s: %v becomes %v, %v", name, m, again, err)
			}
		}
	})
}

func TestRequestsHaveNoMaps(t *testing.T) {
	t.Parallel()
	seen := map[protoreflect.FullName]bool{}
	var look func(protoreflect.MessageDescriptor)
	look = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			switch f := m.Fields().Get(i); {
			case f.IsMap():
				t.Errorf("%s: unknown fields in a map are not found, and its entries are not counted", f.FullName())
			case f.Message() != nil:
				look(f.Message())
			}
		}
	}
	methods := refdbv1.File_refdb_v1_refdb_proto.Services().ByName("RefdbService").Methods()
	for i := range methods.Len() {
		look(methods.Get(i).Input())
	}
}
