package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
)

// check returns an error if a value of JSON is not as a schema says. It knows what the document's schemas use.
func (d document) check(s schema, value any) error {
	evaluated, err := d.evaluate(s, value)
	if object, ok := value.(map[string]any); ok && err == nil && s.Unevaluated != nil && !*s.Unevaluated {
		for name := range object {
			if !evaluated[name] {
				return fmt.Errorf("%s: there is no such property", name)
			}
		}
	}
	return err
}

// evaluate also returns which properties of an object the schema, or a part of it, describes.
func (d document) evaluate(s schema, value any) (map[string]bool, error) {
	if s.Ref != "" {
		target, err := d.resolved(s)
		if err != nil {
			return nil, err
		}
		return nil, d.check(target, value)
	}
	if err := checkType(s, value); err != nil {
		return nil, err
	}
	evaluated := map[string]bool{}
	object, _ := value.(map[string]any)
	for name, v := range object {
		property, ok := s.Properties[name]
		switch {
		case ok:
			evaluated[name] = true
			if err := d.check(property, v); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		case s.Additional != nil && !*s.Additional:
			return nil, fmt.Errorf("%s: there is no such property beside oneOf and allOf", name)
		}
	}
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return nil, fmt.Errorf("%s is required", name)
		}
	}
	list, _ := value.([]any)
	for _, item := range list {
		if err := d.check(*s.Items, item); err != nil {
			return nil, err
		}
	}
	return evaluated, d.evaluateParts(s, value, evaluated)
}

func (d document) evaluateParts(s schema, value any, evaluated map[string]bool) error {
	for _, part := range s.AllOf {
		more, err := d.evaluate(part, value)
		if err != nil {
			return err
		}
		maps.Copy(evaluated, more)
	}
	matches, failures := 0, []error{}
	for _, part := range s.OneOf {
		if more, err := d.evaluate(part, value); err == nil {
			matches++
			maps.Copy(evaluated, more)
		} else {
			failures = append(failures, err)
		}
	}
	if len(s.OneOf) > 0 && matches != 1 {
		return fmt.Errorf("%d schemas of oneOf match: %w", matches, errors.Join(failures...))
	}
	return nil
}

func checkType(s schema, value any) error {
	ok := false
	switch s.Type {
	case "object":
		_, ok = value.(map[string]any)
	case "array":
		_, ok = value.([]any)
	case "boolean":
		_, ok = value.(bool)
	case "integer", "number":
		_, ok = value.(float64)
	case "string":
		text, isText := value.(string)
		ok = isText && (len(s.Enum) == 0 || slices.Contains(s.Enum, text)) && regexp.MustCompile(s.Pattern).MatchString(text)
	case nil: // a part of a schema
		ok = true
	}
	if !ok {
		return fmt.Errorf("%v is no %v", value, s.Type)
	}
	return nil
}

// example returns a message with all fields, except that of each oneof it has the one with the index choice, if any.
func example(d protoreflect.MessageDescriptor, choice int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(d)
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if o := f.ContainingOneof(); o != nil && f != o.Fields().Get(choice%o.Fields().Len()) {
			continue
		}
		if f.IsList() {
			m.Mutable(f).List().Append(exampleOf(f, choice))
		} else {
			m.Set(f, exampleOf(f, choice))
		}
	}
	return m
}

func exampleOf(f protoreflect.FieldDescriptor, choice int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return protoreflect.ValueOfMessage(example(f.Message(), choice))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1 + rand.Int64N(1000))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	}
	return protoreflect.ValueOfString("text")
}

// jsonOf returns the JSON of a message, which is what the server reads and writes.
func jsonOf(t *testing.T, m *dynamicpb.Message) map[string]any {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestTheSchemasAcceptWhatTheServerAcceptsAndSends(t *testing.T) {
	t.Parallel()
	d, _ := openAPI(t)
	methods := refdbv1.File_refdb_v1_refdb_proto.Services().ByName("RefdbService").Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		for _, message := range []protoreflect.MessageDescriptor{m.Input(), m.Output()} {
			s, request := d.Components.Schemas[string(message.FullName())], message == m.Input()
			for choice := range 5 {
				object := jsonOf(t, example(message, choice))
				if err := d.check(s, object); err != nil {
					t.Errorf("%s %v: %v", message.Name(), object, err)
				}
				// A server refuses fields that it does not know; a client ignores them.
				object["another"] = "text"
				if err := d.check(s, object); (err != nil) != request {
					t.Errorf("%s with another field: %v", message.Name(), err)
				}
			}
			if request && d.check(s, map[string]any{"project": 7.0, "lock": "text"}) == nil {
				t.Errorf("%s: a field may have any type", message.Name())
			}
		}
	}
	if !d.acceptsUpdates("old") || d.acceptsUpdates("odl") {
		t.Error("a misspelt field of an update is accepted, or a right one is not")
	}
}

// acceptsUpdates reports whether an update may have such a field.
func (d document) acceptsUpdates(field string) bool {
	return d.check(d.Components.Schemas["refdb.v1.UpdateRequest"], map[string]any{"updates": []any{map[string]any{field: "text"}}}) == nil
}

func TestTheDocumentRequiresNothingThatTheServerDoesNot(t *testing.T) {
	t.Parallel()
	d, _ := openAPI(t)
	for path, methods := range d.Paths {
		for _, r := range methods {
			for _, p := range r.Parameters {
				if p.Required && p.Name != "project" {
					t.Errorf("%s requires %s", path, p.Name)
				}
			}
		}
	}
}
