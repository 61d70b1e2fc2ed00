package spanner

import (
	"math"
	"testing"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestTheOldValueOfARefIsReportedOnlyIfCertain(t *testing.T) {
	t.Parallel()
	const a, b, none = "aaaa", "bbbb", "-"
	zeros := string(driver.Deleted)
	// A row holds a value since a time, in microseconds; a change assigned a value at a time.
	type held struct {
		value string
		time  int64 // 0 for NULL
	}
	row := func(h held) refRow {
		return refRow{value: orNull(h.value), time: spanner.NullTime{Time: time.UnixMicro(h.time), Valid: h.time != 0}}
	}
	for _, r := range []struct {
		name       string
		row, below held   // of the newest change up to position 10
		above      string // the old value of the next change; "" if there is none, none if that change found no row
		want       string // "" for no row
		unknown    bool
	}{
		{name: "the newest change made the row", row: held{a, 5}, below: held{a, 5}, want: a},
		{name: "another change follows", row: held{b, 15}, below: held{a, 5}, above: a, want: a},
		{name: "the first change follows", row: held{b, 15}, above: a, want: a},
		{name: "the first change follows, which made the row", row: held{b, 15}, above: none, want: ""},
		{name: "the row is older than the history", row: held{a, 1}, want: a},
		{name: "the row has no time, and no change", row: held{a, 0}, want: a},
		{name: "the ref was removed later", below: held{a, 5}, above: a, want: a},
		{name: "the ref was removed before", below: held{"", 5}, want: ""},
		{name: "the ref was deleted, and its tombstone purged", below: held{zeros, 5}, want: zeros},
		{name: "the ref was deleted, purged, and created again later", row: held{b, 15}, below: held{zeros, 5}, above: none, want: zeros},
		{name: "the row was written without a record before", row: held{b, 8}, below: held{a, 5}, want: b},
		{name: "the row was written without a record later", row: held{b, 15}, below: held{a, 5}, unknown: true},
		{name: "the row was inserted without a record later", row: held{b, 15}, unknown: true},
		{name: "the row is older than the change that made it", row: held{b, 3}, below: held{a, 5}, unknown: true},
		{name: "the row has no time, but a change", row: held{b, 0}, below: held{a, 5}, unknown: true},
		{name: "the row was deleted without a record", below: held{a, 5}, unknown: true},
		{name: "the ref changed without a record between two changes", row: held{b, 15}, below: held{a, 5}, above: b, unknown: true},
		{name: "the ref was created without a record between two changes", row: held{b, 15}, below: held{zeros, 5}, above: b, unknown: true},
	} {
		f := pastRef{name: "refs/heads/main", row: row(r.row), below: row(r.below)}
		f.below.value.Valid = r.below.time != 0
		f.above = spanner.NullString{StringVal: r.above, Valid: r.above != ""}
		if r.above == none {
			f.above.StringVal = ""
		}
		got, ok := f.at(10)
		if ok == r.unknown || ok && (string(got.Value) != r.want || got.Name != f.name) {
			t.Errorf("%s: %+v, %t", r.name, got, ok)
		}
	}
}

func TestEveryPositionHasATimeThatSpannerAccepts(t *testing.T) {
	t.Parallel()
	for p, want := range map[driver.Position]string{
		math.MinInt64: "0001-01-01T00:00:00Z", 0: "1970-01-01T00:00:00Z", 1_000_001: "1970-01-01T00:00:01.000001Z", math.MaxInt64: "9999-12-31T23:59:59Z",
	} {
		if got := instant(p).Format(time.RFC3339Nano); got != want {
			t.Errorf("%d: %s, want %s", p, got, want)
		}
	}
}
