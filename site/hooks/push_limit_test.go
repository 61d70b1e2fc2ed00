package hooks

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// From git 2.51 on, and with --atomic, all refs that update lets through go into one transaction.
func TestUpdateLetsNoMoreRefsThroughThanATransactionTakes(t *testing.T) {
	t.Parallel()
	p := &push{}
	for n := range refdb.MaxLockRefs {
		if err := p.admit(1); err != nil {
			t.Fatalf("ref %d: %v", n, err)
		}
	}
	if err := p.admit(1); err == nil || !strings.Contains(err.Error(), "more than 3500 refs in one push") {
		t.Errorf("one more: %v", err)
	}
	if err := p.admit(1); err == nil || err.Error() != "" {
		t.Errorf("another one: %v, want a refusal that does not repeat itself", err)
	}
	p.resetAdmitted()
	if err := p.admit(1); err != nil {
		t.Errorf("in the next transaction: %v", err)
	}
}
