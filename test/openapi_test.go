package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
)

// A document is proto/openapi.yaml, as far as the tests look.
type document struct {
	OpenAPI    string                        `yaml:"openapi"`
	Paths      map[string]map[string]request `yaml:"paths"`
	Components struct {
		Schemas map[string]schema `yaml:"schemas"`
	} `yaml:"components"`
	Security []map[string][]string `yaml:"security"`
}

type request struct {
	RequestBody struct {
		Content map[string]struct{ Schema schema } `yaml:"content"`
	} `yaml:"requestBody"`
	Parameters []struct {
		Name, In string
		Required bool
	} `yaml:"parameters"`
	Responses map[string]struct {
		Content map[string]struct{ Schema schema } `yaml:"content"`
	} `yaml:"responses"`
}

type schema struct {
	Ref         string            `yaml:"$ref"`
	Type        any               `yaml:"type"`
	Enum        []string          `yaml:"enum"`
	Pattern     string            `yaml:"pattern"`
	Properties  map[string]schema `yaml:"properties"`
	Required    []string          `yaml:"required"`
	Items       *schema           `yaml:"items"`
	AllOf       []schema          `yaml:"allOf"`
	OneOf       []schema          `yaml:"oneOf"`
	Additional  *bool             `yaml:"additionalProperties"`
	Unevaluated *bool             `yaml:"unevaluatedProperties"`
}

// fields returns the properties of a schema and of its parts.
func (s schema) fields() map[string]schema {
	all := maps.Clone(s.Properties)
	if all == nil {
		all = make(map[string]schema)
	}
	for _, part := range slices.Concat(s.AllOf, s.OneOf) {
		maps.Copy(all, part.fields())
	}
	return all
}

const schemas = "#/components/schemas/"

func openAPI(t *testing.T) (document, string) {
	t.Helper()
	text, err := os.ReadFile("../proto/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d, string(text)
}

// resolved returns a schema, or the one that it refers to.
func (d document) resolved(s schema) (schema, error) {
	if s.Ref == "" {
		return s, nil
	}
	found, ok := d.Components.Schemas[strings.TrimPrefix(s.Ref, schemas)]
	if !ok {
		return s, fmt.Errorf("there is no schema %s", s.Ref)
	}
	return found, nil
}

// ofRequest returns the schema of a method's request.
func (d document) ofRequest(method string) (schema, error) {
	body, ok := d.Paths["/refdb.v1.RefdbService/"+method]["post"].RequestBody.Content["application/json"]
	if !ok {
		return schema{}, fmt.Errorf("there is no POST of JSON for %s", method)
	}
	return d.resolved(body.Schema)
}

func TestTheOpenAPIDocumentHasEachCallWithItsFields(t *testing.T) {
	t.Parallel()
	d, text := openAPI(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1") || len(d.Security) != 1 {
		t.Errorf("version %s, security %v", d.OpenAPI, d.Security)
	}
	methods := refdbv1.File_refdb_v1_refdb_proto.Services().ByName("RefdbService").Methods()
	if len(d.Paths) != methods.Len()+1 { // /v1/watch
		t.Errorf("%d paths for %d methods", len(d.Paths), methods.Len())
	}
	for i := range methods.Len() {
		m := methods.Get(i)
		if m.IsStreamingServer() {
			continue
		}
		s, err := d.ofRequest(string(m.Name()))
		if err != nil {
			t.Error(err)
			continue
		}
		var have, want []string
		for name := range s.fields() {
			have = append(have, name)
		}
		for i := range m.Input().Fields().Len() {
			want = append(want, m.Input().Fields().Get(i).JSONName())
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s has %q instead of %q", m.Name(), have, want)
		}
	}
	messages := refdbv1.File_refdb_v1_refdb_proto.Messages()
	for i := range messages.Len() {
		if _, ok := d.Components.Schemas[string(messages.Get(i).FullName())]; !ok {
			t.Errorf("there is no schema of %s", messages.Get(i).FullName())
		}
	}
	for _, ref := range regexp.MustCompile(`\$ref: '?`+schemas+`([^'\s]+)`).FindAllStringSubmatch(text, -1) {
		if _, ok := d.Components.Schemas[ref[1]]; !ok {
			t.Errorf("there is no schema %s", ref[1])
		}
	}
}

// The JSON of a stream of the Connect protocol is in binary frames. What a client without generated code uses are the events.
func TestTheOpenAPIDocumentHasTheEvents(t *testing.T) {
	t.Parallel()
	d, _ := openAPI(t)
	events := d.Paths["/v1/watch"]["get"]
	var have, want []string
	for _, p := range events.Parameters {
		if p.In == "query" {
			have = append(have, p.Name)
		}
	}
	fields := (&refdbv1.WatchRequest{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		want = append(want, fields.Get(i).JSONName())
	}
	slices.Sort(have)
	slices.Sort(want)
	if _, ok := events.Responses["200"].Content["text/event-stream"]; !ok || !slices.Equal(have, want) {
		t.Errorf("parameters %q instead of %q; responses %v", have, want, events.Responses)
	}
}

// Calls in the page, as TestTheServicesPageRunsAsItIsWritten runs them. What the shell puts in is a lock, an ID or a number.
var documentedCall = regexp.MustCompile(`(?m)call ([A-Z][A-Za-z]+) (?:'(\{.*?\})'|"(\{.*?[^\\])"(?: |$))`)

func TestTheCallsOfTheServicesPageAreAsTheOpenAPIDocumentSays(t *testing.T) {
	t.Parallel()
	d, _ := openAPI(t)
	page, err := os.ReadFile("../docs/SERVICE.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, call := range documentedCall.FindAllStringSubmatch(string(page), -1) {
		body := call[2]
		if body == "" {
			body = regexp.MustCompile(`\$\([^)]*\)`).ReplaceAllString(strings.ReplaceAll(call[3], `\"`, `"`), "{}")
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(body), &fields); err != nil {
			t.Errorf("%s %s: %v", call[1], body, err)
			continue
		}
		s, err := d.ofRequest(call[1])
		if err != nil {
			t.Error(err)
			continue
		}
		seen[call[1]] = true
		for name, value := range fields {
			property, ok := s.fields()[name]
			if !ok {
				t.Errorf("%s has no field %s", call[1], name)
				continue
			}
			list, isList := value.([]any)
			if isList != (property.Items != nil) {
				t.Errorf("%s: %s is a list: %v", call[1], name, isList)
			}
			if !isList || len(list) == 0 {
				continue
			}
			element, err := d.resolved(*property.Items)
			if err != nil {
				t.Error(err)
			}
			object, _ := list[0].(map[string]any)
			for name := range object {
				if _, ok := element.fields()[name]; !ok {
					t.Errorf("%s: an element has no field %s", call[1], name)
				}
			}
		}
	}
	for _, method := range []string{"Acquire", "At", "Extend", "Get", "IsUpToDate", "List", "Log", "Release", "Update"} {
		if !seen[method] {
			t.Errorf("no call of %s was found in the page", method)
		}
	}
}
