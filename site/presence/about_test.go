package presence

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// What a site says fits into a value, whatever the projects' names.
func TestWhatASiteSaysAboutItselfFits(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	db, err := refdb.New(shared.Open(t), refdb.Options{Site: "eu-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, x := range []struct{ length, want int }{{10, NamedBehind}, {1000, 4}, {5000, 0}} {
		said := About{Version: "v1", Store: "all", Followed: 30, Behind: 20}
		for range said.Behind {
			said.Projects = append(said.Projects, strings.Repeat("p", x.length))
		}
		if err := Tell(t.Context(), db, "eu-1", said); err != nil {
			t.Fatal(err)
		}
		all, err := Abouts(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if got := all["eu-1"]; len(all) != 1 || len(got.Projects) != x.want || got.Behind != 20 || got.Followed != 30 || got.Version != "v1" || got.Store != "all" {
			t.Errorf("names of %d bytes: %+v", x.length, all)
		}
	}
}

func TestAReportIsRepeatedOnlyIfItSaysSomethingNew(t *testing.T) {
	t.Parallel()
	said := About{Version: "v1", Behind: 2, Projects: []string{"p", "q"}, BehindFor: 100}
	for _, x := range []struct {
		what    string
		now     About
		repeats bool
	}{
		{"a minute later", About{Version: "v1", Behind: 2, Projects: []string{"p", "q"}, BehindFor: 160}, true},
		{"clocks differ a little", About{Version: "v1", Behind: 2, Projects: []string{"p", "q"}, BehindFor: 163}, true},
		{"behind anew", About{Version: "v1", Behind: 2, Projects: []string{"p", "q"}, BehindFor: 5}, false},
		{"another one", About{Version: "v1", Behind: 2, Projects: []string{"q", "p"}, BehindFor: 160}, false},
		{"an alarm", About{Version: "v1", Behind: 2, Projects: []string{"p", "q"}, BehindFor: 160, Alarms: []string{"x"}}, false},
	} {
		if got := x.now.repeats(said, time.Minute); got != x.repeats {
			t.Errorf("%s: it repeats: %v", x.what, got)
		}
	}
	if at := time.Unix(1000, 0); (About{Behind: 1, BehindFor: 50, Told: at}).Behindness(at.Add(time.Minute)) != 110*time.Second {
		t.Error("what was told is not aged")
	}
}
