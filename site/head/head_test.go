package head_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/head"
)

func TestWhatBecomesOfHEAD(t *testing.T) {
	t.Parallel()
	const (
		main, trunk, other = refdb.Value("ref: refs/heads/main"), refdb.Value("ref: refs/heads/trunk"), refdb.Value("ref: refs/heads/other")
		detached           = refdb.Value("1111111111111111111111111111111111111111")
		none               = refdb.Unknown
	)
	for name, c := range map[string]struct {
		here, global, agreed refdb.Value
		want                 head.Step
		inWorkTree           head.Step
	}{
		"both are as they were":                        {main, main, main, head.Nothing, head.Nothing},
		"a first look, and they are equal":             {main, main, none, head.Agree, head.Agree},
		"a first look, and they differ":                {main, trunk, none, head.Differ, head.Follow},
		"the database has changed":                     {main, trunk, main, head.Follow, head.Follow},
		"HEAD has changed here":                        {trunk, main, main, head.Announce, head.Follow},
		"both have changed":                            {trunk, other, main, head.Differ, head.Follow},
		"both have changed to the same":                {trunk, trunk, main, head.Agree, head.Agree},
		"a first look, and the database says nothing":  {main, none, none, head.Agree, head.Nothing},
		"the database still says nothing":              {main, none, main, head.Nothing, head.Nothing},
		"HEAD has changed, and the database is silent": {trunk, none, main, head.Announce, head.Nothing},
		"the database has forgotten":                   {main, refdb.Deleted, main, head.Nothing, head.Nothing},
		"detached here":                                {detached, main, main, head.Follow, head.Follow},
		"detached here, and the database is silent":    {detached, none, main, head.Nothing, head.Nothing},
		"detached in the database":                     {main, detached, main, head.Nothing, head.Nothing},
		"detached in the database, and changed here":   {trunk, detached, main, head.Nothing, head.Nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := head.State{Here: c.here, Global: c.global, Agreed: c.agreed}
			if got := s.Step(); got != c.inWorkTree {
				t.Errorf("in a repository with a work tree: %d instead of %d", got, c.inWorkTree)
			}
			s.Bare = true
			if got := s.Step(); got != c.want {
				t.Errorf("%d instead of %d", got, c.want)
			}
		})
	}
}

func TestWhatWasAgreedOnIsRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, want := range []refdb.Value{refdb.Unknown, "ref: refs/heads/main", "ref: refs/heads/trunk"} {
		if want != refdb.Unknown {
			if err := head.NoteAgreed(dir, want); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := head.ReadAgreed(dir); err != nil || got != want {
			t.Errorf("%q instead of %q, %v", got, want, err)
		}
	}
}
