package audit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// inBubble runs test on an empty database, whose time is that of a bubble.
func inBubble(t *testing.T, test func(t *testing.T, h *audit.Handle)) {
	synctest.Test(t, func(t *testing.T) {
		db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "eu-1"})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		test(t, db.Audit())
	})
}

func record(t *testing.T, h *audit.Handle, e driver.AuditEntry) driver.AuditEntry {
	t.Helper()
	got, err := h.Record(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func all(t *testing.T, h *audit.Handle, f audit.Filter) (entries []driver.AuditEntry) {
	t.Helper()
	for e, err := range h.All(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func TestAnEntryKeepsItsFirstOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, h *audit.Handle) {
		began := time.Now()
		e := record(t, h, driver.AuditEntry{Who: "alice@host", Action: "locks purge", Project: "p", Outcome: "done", Ended: began})
		if e.ID == "" || !e.Time.Equal(began) || e.Outcome != "" || !e.Ended.IsZero() {
			t.Errorf("recorded %+v: want an ID, the database's time, and no outcome before the action", e)
		}
		if got := all(t, h, audit.Filter{}); len(got) != 1 || got[0] != e {
			t.Errorf("before the action the audit has %+v, want %+v", got, e)
		}
		time.Sleep(time.Minute)
		for _, outcome := range []string{"1 lock purged", "another outcome"} {
			if err := h.Conclude(t.Context(), e, outcome); err != nil {
				t.Errorf("%s: %v", outcome, err)
			}
		}
		if got := all(t, h, audit.Filter{}); len(got) != 1 || got[0].Outcome != "1 lock purged" || !got[0].Ended.Equal(began.Add(time.Minute)) {
			t.Errorf("after the action the audit has %+v", got)
		}
	})
}

func TestAnOutcomeOfNoEntryIsAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, h *audit.Handle) {
		e := record(t, h, driver.AuditEntry{Action: "recover"})
		e.ID += "x"
		if err := h.Conclude(t.Context(), e, "done"); err == nil {
			t.Error("an outcome was recorded of an entry that the audit does not have")
		}
		if got := all(t, h, audit.Filter{}); len(got) != 1 || got[0].Outcome != "" {
			t.Errorf("the audit has %+v", got)
		}
	})
}

func TestTheAuditIsFilteredAndInTheOrderOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T, h *audit.Handle) {
		var entries []driver.AuditEntry
		for _, project := range []string{"q", "p", "p"} {
			entries = append(entries, record(t, h, driver.AuditEntry{Action: "project set", Project: project}))
			time.Sleep(time.Minute)
		}
		for name, c := range map[string]struct {
			filter audit.Filter
			want   []driver.AuditEntry
		}{
			"all":                   {audit.Filter{}, entries},
			"of a project":          {audit.Filter{Project: "p"}, entries[1:]},
			"since a time":          {audit.Filter{Since: entries[1].Time}, entries[1:]},
			"of a project, since":   {audit.Filter{Project: "p", Since: entries[2].Time}, entries[2:]},
			"of a project, of none": {audit.Filter{Project: "r"}, nil},
		} {
			got := all(t, h, c.filter)
			if len(got) != len(c.want) {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
				continue
			}
			for i, e := range got {
				if e != c.want[i] {
					t.Errorf("%s: entry %d is %+v, want %+v", name, i, e, c.want[i])
				}
			}
		}
	})
}
