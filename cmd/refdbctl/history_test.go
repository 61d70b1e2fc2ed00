package main

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

type historyJSON struct {
	Epochs []struct {
		Epoch, Reason string
		First         int64
		Began         time.Time
		By            *string
	}
	Upto, Pruned int64
	PrunedTime   *time.Time `json:"pruned_time"`
	Begin        time.Time
}

func TestTheHistoryTellsFromWhenToWhenItGoes(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a")
	rows, _ := w.log(t)
	var h historyJSON
	eventually(t, "the change is complete", func() bool {
		h = decode[historyJSON](t, w.do(t, "history", "stats", "-o", "json"))
		return h.Upto >= rows[0].Position
	})
	if len(h.Epochs) != 1 || h.Epochs[0].Epoch == "" || h.Epochs[0].First != h.Pruned || h.Pruned > rows[0].Position || h.PrunedTime != nil || !h.Begin.Equal(h.Epochs[0].Began) {
		t.Errorf("%+v", h)
	}
	table := w.do(t, "history", "stats")
	for _, want := range []string{"UPTO", "PRUNED", "PRUNED TIME  -", "BEGIN", "EPOCH", "the history begins"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestPruningKeepsTheNewestAndWhatIsUnread(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a", "b", "c", "d")
	w.puts(t, "refs/heads/x", "a")
	w.Exec(t, `UPDATE history SET time = time - interval '100 days'`)
	w.puts(t, mainRef, "e")
	if err := w.open(t).Followers().Put(t.Context(), "mirror", refdb.Cursor{}); err != nil {
		t.Fatal(err)
	}
	rows, _ := w.log(t)
	eventually(t, "all is complete", func() bool {
		return decode[historyJSON](t, w.do(t, "history", "stats", "-o", "json")).Upto >= rows[0].Position
	})
	for _, step := range []struct{ args, prints, left string }{
		{"--older-than 200d --keep 0", "pruned 0 changes", "main d>e, x ->a, main c>d, main b>c, main a>b, main ->a"},
		{"--older-than 90d --keep 0", "pruned 0 changes", "main d>e, x ->a, main c>d, main b>c, main a>b, main ->a"}, // the mirror has read nothing
		{"--older-than 90d --even-unread 99d --keep 4", "pruned 1 change", "main d>e, x ->a, main c>d, main b>c, main a>b"},
		{"--older-than 90d --even-unread 99d --keep 2", "pruned 2 changes", "main d>e, x ->a, main c>d"},
	} {
		if got := w.do(t, append([]string{"history", "prune", "--yes"}, strings.Fields(step.args)...)...); got != step.prints+"\n" {
			t.Errorf("%s: %q", step.args, got)
		}
		if _, said := w.log(t); said != step.left {
			t.Errorf("%s leaves %s, want %s", step.args, said, step.left)
		}
	}
	w.do(t, "followers", "remove", "mirror", "--yes")
	if got := decode[struct{ Pruned int }](t, w.do(t, "history", "prune", "--older-than=90d", "--keep=0", "--yes", "-o", "json")); got.Pruned != 2 {
		t.Errorf("without the mirror: %+v", got)
	}
	acts := w.audit(t)
	if len(acts) != 6 || acts[2].Action != "history prune" || !strings.Contains(acts[2].Detail, "older than 2160h0m0s, but for the newest 4 of each ref") || *acts[2].Outcome != "pruned 1" {
		t.Errorf("the audit has %+v", acts)
	}
	w.run(t, "refs", "rollback", "p", mainRef+"@{2}", "--yes").is(t, exit.Failed, "has 1 change in it")
}

func TestWhatPruningAndFollowersRefuse(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"history prune --yes":                                     {exit.Misuse, "older-than"},
		"history prune --older-than 90d":                          {exit.Misuse, "no terminal to ask on: add --yes"},
		"history prune --older-than 90d --keep -1 --yes":          {exit.Misuse, "--keep -1"},
		"history prune --older-than 90d --even-unread 9d --yes":   {exit.Misuse, "must be at least as long as"},
		"history prune --older-than 2026-01-31 --yes":             {exit.Misuse, "give an age"},
		"followers remove mirror":                                 {exit.Misuse, "add --yes"},
		"followers remove mirror --yes":                           {exit.Failed, "no such follower: mirror"},
		"followers remove " + strings.Repeat("x", 201) + " --yes": {exit.Misuse, "invalid follower"},
	} {
		r := w.run(t, strings.Fields(args)...)
		r.is(t, want.code, want.says)
		r.isOneLine(t)
	}
}

type followerJSON struct {
	Name       string
	Read       int64
	Seen       time.Time
	AgeSeconds *float64 `json:"age_seconds"`
	Cursor     *string
}

func TestFollowersAreListedAndRemoved(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	db := w.open(t)
	end, err := db.HistoryEnd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mirror\u202e", "a new one"} {
		cursor := end
		if name == "a new one" {
			cursor = refdb.Cursor{}
		}
		if err := db.Followers().Put(t.Context(), name, cursor); err != nil {
			t.Fatal(err)
		}
	}
	all := decode[[]followerJSON](t, w.do(t, "followers", "list", "-o", "json"))
	if len(all) != 2 || all[0].Name != "a new one" || all[0].Cursor != nil || all[0].Seen.IsZero() || all[0].AgeSeconds == nil ||
		all[1].Read != int64(end.Position()) || *all[1].Cursor != end.String() {
		t.Errorf("%+v", all)
	}
	if got := w.do(t, "followers", "list"); !strings.Contains(got, `mirror\u202e  `) || !strings.Contains(got, "LAST SEEN") {
		t.Errorf("%q", got)
	}
	if got := w.do(t, "followers", "remove", "a new one", "--yes"); got != "removed a new one\n" {
		t.Errorf("%q", got)
	}
	if all := decode[[]followerJSON](t, w.do(t, "followers", "list", "-o", "json")); len(all) != 1 {
		t.Errorf("left: %+v", all)
	}
}
