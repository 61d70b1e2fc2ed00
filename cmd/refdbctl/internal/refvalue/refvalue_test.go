package refvalue_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/refvalue"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func id(digit string) string { return strings.Repeat(digit, 40) }

func TestValuesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		any  bool
		want refdb.Value
		ok   bool
	}{
		{id("a"), false, refdb.Value(id("a")), true},
		{id("A"), false, refdb.Value(id("a")), true},
		{id("a") + id("b")[:24], false, refdb.Value(id("a") + id("b")[:24]), true},
		{id("0"), false, refdb.Deleted, true},
		{"ref: refs/heads/main", false, "ref: refs/heads/main", true},
		{"ref: main", false, "", false},
		{"abc123", false, "", false},
		{id("a")[1:], false, "", false},
		{"", true, "", false},
		{"7", true, "7", true},
		{"7", false, "", false},
		{"bad\xff", true, "", false},
	} {
		got, err := refvalue.Parse(c.text, c.any)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("parseValue(%q, %v) = %q, %v", c.text, c.any, got, err)
		}
		if err != nil && exit.Code(err) != exit.Misuse {
			t.Errorf("%v is no usage error", err)
		}
	}
	if v, err := refvalue.ParseOld("none", false); err != nil || v != refdb.Unknown {
		t.Errorf("none: %q, %v", v, err)
	}
}
