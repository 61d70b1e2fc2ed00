package operation_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
)

func FuzzWhatIsWrittenIsRead(f *testing.F) {
	f.Add("id", "eu-1/host:7:abc", "alice")
	f.Add("id", "", "")
	f.Add("id", "a\tb", "x\ty")
	f.Fuzz(func(t *testing.T, id, owner, by string) {
		id = strings.ReplaceAll(id, "\t", "") // IDs are random letters
		text := operation.Text(driver.Origin{ID: id, Owner: owner, By: by})
		got := operation.Parse(text)
		if got.ID != id || got.Owner != owner || operation.ID(text) != id {
			t.Errorf("%q is read as %+v", text, got)
		}
		if !strings.ContainsAny(by, "\t\n") && len(by) < 50 && got.By != by && strings.ToValidUTF8(by, "") == by && !hasControl(by) {
			t.Errorf("by %q is read as %q", by, got.By)
		}
	})
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 })
}

func TestAnOperationFromBeforeTheHistoryIsItsID(t *testing.T) {
	if got := operation.Parse("ABC"); got != (driver.Origin{ID: "ABC"}) {
		t.Errorf("%+v", got)
	}
}
