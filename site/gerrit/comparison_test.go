package gerrit_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

func TestWhatTheGuardHasNotedOfItsComparison(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]gerrit.Comparison{
		"began 1700000000\n":           {Time: time.Unix(1700000000, 0)},
		"ended 1700000000 120345 17\n": {Ended: true, Time: time.Unix(1700000000, 0), Compared: 120345, Stale: 17},
	} {
		d := open(t, map[string]string{"etc/gerrit.config": "", "data/refdb/compared": text})
		if got, ok, err := d.LastComparison(); got != want || !ok || err != nil {
			t.Errorf("%q: %+v, %v, %v", text, got, ok, err)
		}
	}
	if got, ok, err := open(t, map[string]string{"etc/gerrit.config": ""}).LastComparison(); ok || err != nil {
		t.Errorf("none: %+v, %v, %v", got, ok, err)
	}
	for _, text := range []string{"", "ended", "ended 1 2\n", "x"} {
		if got, ok, err := open(t, map[string]string{"etc/gerrit.config": "", "data/refdb/compared": text}).LastComparison(); ok || err == nil {
			t.Errorf("%q: %+v, %v, %v", text, got, ok, err)
		}
	}
}

func TestAComparisonIsAskedForUntilTheGuardTakesItUp(t *testing.T) {
	t.Parallel()
	d := open(t, map[string]string{"etc/gerrit.config": ""})
	if _, ok := d.ComparisonAsked(); ok {
		t.Error("nobody has asked")
	}
	if err := d.AskForComparison(); err != nil {
		t.Fatal(err)
	}
	if since, ok := d.ComparisonAsked(); !ok || since.IsZero() {
		t.Errorf("%v, %v", since, ok)
	}
	if err := os.Remove(filepath.Join(d.Path, "data/refdb/compare")); err != nil { // as the guard does
		t.Fatal(err)
	}
	if _, ok := d.ComparisonAsked(); ok {
		t.Error("it was taken up")
	}
}
