package issuers

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestTheConfigurationOfIssuersIsReadStrictly(t *testing.T) {
	t.Parallel()
	const valid = `"name": "ci", "url": "https://ci.example.com", "audience": "refdb"`
	for content, ok := range map[string]bool{
		`{"issuers": [{` + valid + `}]}`: true,
		`{"issuers": [{` + valid + `, "subject": "project_path", "claims": {"ref_protected": "true"}}]}`: true,
		`{"issuers": [{` + valid + `, "ca": "/etc/ca.pem"}]}`:                                            true,
		``:                                  false,
		`{}`:                                false,
		`[]`:                                false,
		`{"issuers": [{` + valid + `}]} {}`: false,
		`{"issuers": [{` + valid + `, "claim": {"ref_protected": "true"}}]}`:                                    false,
		`{"issuers": [{` + valid + `, "claims": {"ref_protected": ""}}]}`:                                       false,
		`{"issuers": [{` + valid + `, "claims": {"ref_protected": true}}]}`:                                     false,
		`{"issuers": [{` + valid + `, "ca": "ca.pem"}]}`:                                                        false,
		`{"issuers": [{` + valid + `}, {"name": "ci", "url": "https://b.example.com", "audience": "refdb"}]}`:   false,
		`{"issuers": [{` + valid + `}, {"name": "b", "url": "https://ci.example.com", "audience": "x"}]}`:       false,
		`{"issuers": [{"name": "ci", "url": "https://ci.example.com"}]}`:                                        false,
		`{"issuers": [{"url": "https://ci.example.com", "audience": "refdb"}]}`:                                 false,
		`{"issuers": [{"name": "c:i", "url": "https://ci.example.com", "audience": "refdb"}]}`:                  false,
		`{"issuers": [{"name": "CI", "url": "https://ci.example.com", "audience": "refdb"}]}`:                   false,
		`{"issuers": [{"name": "ci", "url": "http://ci.example.com", "audience": "refdb"}]}`:                    false,
		`{"issuers": [{"name": "ci", "url": "https://u@ci.example.com", "audience": "refdb"}]}`:                 false,
		`{"issuers": [{"name": "ci", "url": "https://ci.example.com?x", "audience": "refdb"}]}`:                 false,
		`{"issuers": [{"name": "ci", "url": "ci.example.com", "audience": "refdb"}]}`:                           false,
		`{"issuers": [{"name": "` + strings.Repeat("a", maxConfig) + `", "url": "https://a", "audience": "r"}]`: false,
	} {
		file := filepath.Join(t.TempDir(), "issuers.json")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); (err == nil) != ok || err != nil && (!errors.Is(err, refdb.ErrInvalid) || !strings.Contains(err.Error(), file)) {
			t.Errorf("%.200s: %.500v", content, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	page, err := os.ReadFile("../../docs/SERVICE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```json\n")
	example, _, _ = strings.Cut(example, "```")
	if all, err := parse([]byte(example)); err != nil || len(all) != 2 {
		t.Errorf("the example of docs/SERVICE.md: %+v, %v", all, err)
	}
	manifest, err := os.ReadFile("../../deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ = strings.Cut(string(manifest), "  issuers.json: |\n")
	example, _, _ = strings.Cut(example, "---")
	if all, err := parse([]byte(example)); err != nil || len(all) != 1 {
		t.Errorf("the issuers of deploy/kubernetes.yaml: %+v, %v", all, err)
	}
	got, err := parse([]byte(`{"issuers": [{` + valid + `}]}`))
	if want := []Config{{Name: "ci", URL: "https://ci.example.com", Audience: "refdb", Subject: "sub"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
