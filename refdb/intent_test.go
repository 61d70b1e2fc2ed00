package refdb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

const testAgent = "boot:42:1"

func mustPrepare(t *testing.T, db *DB, updates ...Update) intents.Preparation {
	t.Helper()
	p, err := db.Intents().Prepare(t.Context(), "p", updates, testAgent)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPreparationSaysWhatIsIntendedAndNeedsNoBeats(t *testing.T) {
	f := &fake{prepare: func(int, driver.PrepareRequest) (driver.Prepared, error) { return driver.Prepared{Token: 9}, nil }}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		p := mustPrepare(t, db, Update{Ref: "refs/heads/b", Old: "x", New: Deleted}, Update{Ref: "refs/heads/a", New: "y"})
		want := []Update{{Ref: "refs/heads/a", New: "y"}, {Ref: "refs/heads/b", Old: "x", New: Deleted}}
		if p.Project != "p" || p.Owner != db.Owner() || p.Token != 9 || !slices.Equal(p.Updates, want) {
			t.Errorf("prepared %+v", p)
		}
		r := f.prepares[0].arg
		if r.Project != "p" || r.Owner != db.Owner() || r.Nonce == "" || r.Agent != testAgent || !slices.Equal(r.Updates, want) {
			t.Errorf("asked %+v", r)
		}
		time.Sleep(time.Hour)
		if len(f.beats) != 0 || len(f.prepares) != 1 || len(f.acquires) != 0 {
			t.Errorf("%d beats, %d preparations, %d acquisitions", len(f.beats), len(f.prepares), len(f.prepares))
		}
	})
}

func TestAPreparationIsOnBehalfOfWhoeverAsked(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{By: "process"}, f, f, func(t *testing.T, db *DB) {
		moves := []Update{{Ref: testRef, New: "a"}}
		for _, row := range []struct {
			opts []intents.Option
			want string
		}{{nil, "process"}, {[]intents.Option{intents.AskedBy("alice")}, "alice"}, {[]intents.Option{intents.AskedBy("")}, ""}} {
			p, err := db.Intents().Prepare(t.Context(), "p", moves, testAgent, row.opts...)
			if err != nil {
				t.Fatal(err)
			}
			asked := f.prepares[len(f.prepares)-1].arg
			if p.By != row.want || asked.By != row.want || p.Op != asked.Nonce {
				t.Errorf("%q: asked %+v, prepared %+v", row.want, asked, p)
			}
		}
		n := len(f.prepares)
		for _, name := range []string{"a\nb", "\xff", strings.Repeat("x", 201)} {
			_, err := db.Intents().Prepare(t.Context(), "p", moves, testAgent, intents.AskedBy(name))
			wantIs(t, err, ErrInvalid)
		}
		if len(f.prepares) != n {
			t.Errorf("asked %+v", f.prepares[n:])
		}
	})
}

// The ID of one part must not prove that another was written.
func TestTheFinishesOfAPreparationAreRecordedUnderIt(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{By: "process"}, f, f, func(t *testing.T, db *DB) {
		p, err := db.Intents().Prepare(t.Context(), "p", []Update{{Ref: "refs/heads/a", New: "x"}, {Ref: "refs/heads/b", New: "y"}}, testAgent, intents.AskedBy("alice"))
		if err != nil {
			t.Fatal(err)
		}
		listed := intents.Preparation{Project: p.Project, Owner: "site/before", Token: p.Token, Updates: p.Updates, By: "bob", Op: p.Op}
		before := listed // a release before this one did not record it
		before.By, before.Op = "", ""
		for i, row := range []struct {
			intents.Preparation
			by, prefix string
		}{{p, "alice", p.Op + "-"}, {p, "alice", p.Op + "-"}, {listed, "bob", p.Op + "-"}, {before, "", ""}} {
			if err := db.Intents().Finish(t.Context(), row.Preparation, []string{"refs/heads/a"}, nil); err != nil {
				t.Fatal(err)
			}
			r := f.finishes[i].arg
			if r.By != row.by || r.Owner != row.Owner || !strings.HasPrefix(r.ID, row.prefix) || len(r.ID) <= len(row.prefix) || len(r.ID) > 64 {
				t.Errorf("%d: asked %+v, want %+v", i, r, row)
			}
			for _, other := range f.finishes[:i] {
				if other.arg.ID == r.ID {
					t.Errorf("two writes have the ID %s", r.ID)
				}
			}
		}
	})
}

// The first request may be carried out much later.
func TestAPreparationWhoseReplyWasLostIsRevokedBeforeItIsRepeated(t *testing.T) {
	f := &fake{prepare: func(n int, _ driver.PrepareRequest) (driver.Prepared, error) {
		if n == 1 {
			return driver.Prepared{}, errCut
		}
		return driver.Prepared{Token: 3}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		p := mustPrepare(t, db, Update{Ref: testRef, New: "a"})
		if len(f.prepares) != 2 || f.prepares[0].arg.Nonce == f.prepares[1].arg.Nonce || p.Op != f.prepares[1].arg.Nonce || p.Token != 3 {
			t.Errorf("requests %+v, prepared %+v", f.prepares, p)
		}
		if len(f.revokes) != 1 || f.revokes[0].arg.Nonce != f.prepares[0].arg.Nonce {
			t.Errorf("revoked %+v", f.revokes)
		}
		if err := db.Intents().Revoke(t.Context(), p); err != nil || f.revokes[1].arg.Nonce != f.prepares[1].arg.Nonce {
			t.Errorf("revoked %+v, %v: the preparation is the second request's", f.revokes, err)
		}
	})
}

func TestAPreparationOfUnknownOutcomeIsForItsCallerToRevoke(t *testing.T) {
	for name, failure := range map[string]error{"unknown": errCut, "unconfirmed": ErrUnconfirmed} {
		t.Run(name, func(t *testing.T) {
			f := &fake{
				prepare: func(int, driver.PrepareRequest) (driver.Prepared, error) { return driver.Prepared{}, failure },
				revoke: func(n int) error {
					if n == 1 {
						return ErrOutcomeUnknown
					}
					return nil
				},
			}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				p, err := db.Intents().Prepare(t.Context(), "p", []Update{{Ref: testRef, New: "a"}}, testAgent)
				wantIs(t, err, ErrOutcomeUnknown)
				synctest.Wait()
				// Prepare does not repeat what no standby has confirmed.
				if tried := name == "unknown"; len(f.abandons) != 0 || len(f.prepares) != 1 || (len(f.revokes) == 1) != tried {
					t.Errorf("asked %+v, abandoned %+v, revoked %+v", f.prepares, f.abandons, f.revokes)
				}
				for len(f.revokes) < 2 {
					err = db.Intents().Revoke(t.Context(), p)
				}
				if err != nil {
					t.Fatal(err)
				}
				if asked, revoked := f.prepares[0].arg, f.revokes[1].arg; revoked.Nonce != asked.Nonce || !slices.Equal(revoked.Updates, asked.Updates) {
					t.Errorf("asked %+v, revoked %+v", asked, revoked)
				}
			})
		})
	}
}

func TestOnlyAPreparationOfThisProcessIsRevoked(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		wantIs(t, db.Intents().Revoke(t.Context(), intents.Preparation{Project: "p", Token: 1}), ErrInvalid)
		if len(f.revokes) != 0 {
			t.Errorf("revoked %+v", f.revokes)
		}
	})
}

func TestARefusedPreparationTakesNothingBack(t *testing.T) {
	for _, refusal := range []error{&LockedError{}, &MismatchError{}} {
		f := &fake{prepare: func(int, driver.PrepareRequest) (driver.Prepared, error) { return driver.Prepared{}, refusal }}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			_, err := db.Intents().Prepare(t.Context(), "p", []Update{{Ref: testRef, New: "a"}}, testAgent)
			wantIs(t, err, refusal)
			synctest.Wait()
			if len(f.prepares) != 1 || len(f.abandons)+len(f.revokes) != 0 {
				t.Errorf("%d requests, %d abandoned, %d revoked", len(f.prepares), len(f.abandons), len(f.revokes))
			}
		})
	}
}

func TestAFinishIsOneRequest(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		a, b, c := "refs/heads/a", "refs/heads/b", "refs/heads/c"
		p := mustPrepare(t, db, Update{Ref: c, Old: "x", New: Deleted}, Update{Ref: b, New: "y"}, Update{Ref: a, New: "z"})

		if err := db.Intents().Finish(t.Context(), p, []string{c, a}, []string{b}); err != nil {
			t.Fatal(err)
		}
		r := f.finishes[0].arg
		if r.Project != "p" || r.ID == "" || r.Owner != p.Owner || r.Token != p.Token ||
			!slices.Equal(r.Done, []Update{{Ref: a, New: "z"}, {Ref: c, Old: "x", New: Deleted}}) || !slices.Equal(r.Dropped, []string{b}) {
			t.Errorf("asked %+v", r)
		}
		if err := db.Intents().Finish(t.Context(), p, nil, []string{c, b}); err != nil {
			t.Fatal(err)
		}
		if r := f.finishes[1].arg; len(r.Done) != 0 || !slices.Equal(r.Dropped, []string{b, c}) {
			t.Errorf("asked %+v", r)
		}
		if len(f.finishes) != 2 || len(f.updates)+len(f.releases) != 0 {
			t.Errorf("%d finishes, %d updates, %d releases", len(f.finishes), len(f.updates), len(f.releases))
		}
	})
}

// The preparation is made from the intents of an earlier process.
func TestAFinishThatDeletesARefLeavesATombstone(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		p := intents.Preparation{Project: "p", Owner: "site/before", Token: 3, Updates: []Update{{Ref: testRef, Old: Value(strings.Repeat("a", 64)), New: Deleted}}}
		if err := db.Intents().Finish(t.Context(), p, []string{testRef}, nil); err != nil {
			t.Fatal(err)
		}
		if r := f.finishes[0].arg; r.Done[0].New != Deleted256 || r.Owner != "site/before" {
			t.Errorf("asked %+v", r)
		}
	})
}

// No ref is moved: the pending intents can end even if others are lost.
func TestADroppedIntentThatHadEndedIsALossAndTheOthersEnd(t *testing.T) {
	a, b, c := "refs/heads/a", "refs/heads/b", "refs/heads/c"
	gone := func(refs ...string) error { return &LostError{Project: "p", Refs: refs} }
	for name, row := range map[string]struct {
		answers []error
		lost    []string
		asked   int
	}{
		"one":                 {[]error{gone(b), nil}, []string{b}, 2},
		"one more then":       {[]error{gone(c), gone(a), nil}, []string{a, c}, 3},
		"all":                 {[]error{gone(a, b, c)}, []string{a, b, c}, 1},
		"all in two requests": {[]error{gone(a), gone(b, c)}, []string{a, b, c}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{finish: func(n int, _ driver.FinishRequest) error { return row.answers[n-1] }}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				p := mustPrepare(t, db, Update{Ref: a, New: Deleted}, Update{Ref: b, New: Deleted}, Update{Ref: c, New: Deleted})
				err := db.Intents().Finish(t.Context(), p, nil, []string{a, b, c})
				var lost *LostError
				if !errors.As(err, &lost) || !slices.Equal(lost.Refs, row.lost) || ClassOf(err) != StaleOwner {
					t.Errorf("got %v", err)
				}
				if len(f.finishes) != row.asked {
					t.Errorf("%d requests", len(f.finishes))
				}
			})
		})
	}
}

func TestAFinishThatMovesRefsIsNotMadeInParts(t *testing.T) {
	f := &fake{finish: func(int, driver.FinishRequest) error { return &LostError{Project: "p", Refs: []string{"refs/heads/b"}} }}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		p := mustPrepare(t, db, Update{Ref: testRef, New: "a"}, Update{Ref: "refs/heads/b", New: Deleted})
		wantIs(t, db.Intents().Finish(t.Context(), p, []string{testRef}, []string{"refs/heads/b"}), ErrLockLost)
		if len(f.finishes) != 1 {
			t.Errorf("%d requests", len(f.finishes))
		}
	})
}

func TestFinishesWhoseReplyWasLost(t *testing.T) {
	var f *fake
	written := func([]string) ([]Ref, error) { return []Ref{{Name: testRef, Op: f.finishes[0].arg.ID}}, nil }
	others := func([]string) ([]Ref, error) { return []Ref{{Name: testRef, Op: "somebody else's"}}, nil }
	// late is a first request that is carried out after the first read.
	late := func() func([]string) ([]Ref, error) {
		looks := 0
		return func(refs []string) ([]Ref, error) {
			if looks++; looks == 1 {
				return others(refs)
			}
			return written(refs)
		}
	}
	answers := func(errs ...error) func(int, driver.FinishRequest) error {
		return func(n int, _ driver.FinishRequest) error { return errs[min(n, len(errs))-1] }
	}
	for _, c := range []struct {
		name   string
		finish func(int, driver.FinishRequest) error
		get    func([]string) ([]Ref, error)
		want   error
		sent   int
	}{
		{"happened if a row carries their ID", answers(errCut), written, nil, 1},
		{"are sent again if none does: nobody else could write the refs", answers(errCut, nil), others, nil, 2},
		{"happened if the second is refused because of the first", answers(errCut, &LostError{}), late(), nil, 2},
		{"are unknown if the second is refused and there is no trace of the first", answers(errCut, &LostError{}), others, ErrOutcomeUnknown, 2},
		{"tell of the loss as well then", answers(errCut, &LostError{}), others, ErrLockLost, 2},
		{"are unknown when the second reply is lost too", answers(errCut), others, ErrOutcomeUnknown, 2},
		{"are unknown if nobody can look", answers(errCut), func([]string) ([]Ref, error) { return nil, ErrUnavailable }, ErrOutcomeUnknown, 1},
		{"are unknown in spite of the row if no standby confirmed them", answers(ErrUnconfirmed), written, ErrUnconfirmed, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			f = &fake{finish: c.finish, get: c.get}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				p := mustPrepare(t, db, Update{Ref: testRef, New: "a"}, Update{Ref: "refs/heads/b", New: "a"})
				err := db.Intents().Finish(t.Context(), p, []string{testRef}, []string{"refs/heads/b"})
				if !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("%v, want %v", err, c.want)
				}
				if len(f.finishes) != c.sent {
					t.Errorf("sent %d times, want %d", len(f.finishes), c.sent)
				}
				for _, u := range f.finishes {
					if u.arg.ID != f.finishes[0].arg.ID {
						t.Error("two requests, two operations")
					}
				}
			})
		})
	}
}

// A request to drop can be sent twice, but the answer to the second does not tell what
// became of the first: the caller must read the intents.
func TestADropWhoseReplyWasLostIsUnknown(t *testing.T) {
	f := &fake{finish: func(int, driver.FinishRequest) error { return errCut }}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		p := mustPrepare(t, db, Update{Ref: testRef, New: "a"})
		err := db.Intents().Finish(t.Context(), p, nil, []string{testRef})
		if ClassOf(err) != OutcomeUnknown || len(f.finishes) != 1 {
			t.Errorf("%d requests: %v", len(f.finishes), err)
		}
	})
}

func TestInvalidRequestsAreRefusedWithoutTheDatabase(t *testing.T) {
	a, b := Update{Ref: "refs/heads/a", New: "1"}, Update{Ref: "refs/heads/b", New: "1"}
	p := intents.Preparation{Project: "p", Token: 1, Updates: []Update{a, b}}
	listed := []driver.Intent{{Project: "p", Ref: a.Ref, Token: 1}}
	prepare := func(project string, agent string, updates ...Update) func(*testing.T, *DB) error {
		return func(t *testing.T, db *DB) error {
			_, err := db.Intents().Prepare(t.Context(), project, updates, agent)
			return err
		}
	}
	finish := func(p intents.Preparation, done, dropped []string) func(*testing.T, *DB) error {
		return func(t *testing.T, db *DB) error { return db.Intents().Finish(t.Context(), p, done, dropped) }
	}
	resolve := func(d driver.Decision, by, reason string) func(*testing.T, *DB) error {
		return func(t *testing.T, db *DB) error {
			_, err := db.Intents().Resolve(t.Context(), listed, d, by, reason)
			return err
		}
	}
	list := func(f driver.IntentFilter) func(*testing.T, *DB) error {
		return func(t *testing.T, db *DB) error {
			for _, err := range db.Intents().All(t.Context(), f) {
				return err
			}
			return nil
		}
	}
	states := func(refs ...string) func(*testing.T, *DB) error {
		return func(t *testing.T, db *DB) error { _, err := db.Intents().States(t.Context(), "p", refs); return err }
	}
	for name, c := range map[string]struct {
		do   func(*testing.T, *DB) error
		says string
	}{
		"a project without a name":      {prepare("", testAgent, a), "project"},
		"an invalid ref":                {prepare("p", testAgent, Update{Ref: "main", New: "1"}), `"main"`},
		"a ref twice":                   {prepare("p", testAgent, a, a), a.Ref},
		"nothing to prepare":            {prepare("p", testAgent), "no ref"},
		"a value that is not UTF-8":     {prepare("p", testAgent, Update{Ref: a.Ref, New: "\xff"}), "UTF-8"},
		"an agent that is not UTF-8":    {prepare("p", "\xff", a), "agent"},
		"an agent with a NUL":           {prepare("p", "a\x00", a), "agent"},
		"an agent of 201 bytes":         {prepare("p", strings.Repeat("x", 201), a), "at most 200 bytes"},
		"nothing to finish":             {finish(p, nil, nil), "no ref"},
		"done, to hold nothing":         {finish(intents.Preparation{Project: "p", Token: 1, Updates: []Update{{Ref: a.Ref}}}, []string{a.Ref}, nil), "zero ID"},
		"done twice":                    {finish(p, []string{a.Ref, a.Ref}, nil), a.Ref},
		"done and dropped":              {finish(p, []string{a.Ref}, []string{a.Ref}), a.Ref},
		"done, of no preparation":       {finish(p, []string{a.Ref, "refs/heads/c"}, nil), "refs/heads/c"},
		"dropped, of no preparation":    {finish(p, []string{a.Ref}, []string{"refs/heads/c"}), "refs/heads/c"},
		"all dropped, of none":          {finish(intents.Preparation{Project: "p", Token: 1}, nil, []string{a.Ref}), a.Ref},
		"of no project":                 {finish(intents.Preparation{}, []string{a.Ref}, nil), "project"},
		"no decision":                   {resolve(driver.Pending, "me", "reason"), "keep-old"},
		"an unknown decision":           {resolve("flip-a-coin", "me", "reason"), "flip-a-coin"},
		"a decision without a name":     {resolve(driver.KeepOld, "", "reason"), "operator"},
		"a decision without a reason":   {resolve(driver.TakeNew, "me", ""), "reason"},
		"a name that is not UTF-8":      {resolve(driver.TakeNew, "\xff", "reason"), "name"},
		"a reason of 1001 bytes":        {resolve(driver.TakeNew, "me", strings.Repeat("x", 1001)), "at most 1000 bytes"},
		"intents of an invalid project": {list(driver.IntentFilter{Project: "\xff"}), "project"},
		"intents of an invalid ref":     {list(driver.IntentFilter{Ref: "main"}), `"main"`},
		"intents of an invalid owner":   {list(driver.IntentFilter{Owner: "\xff"}), "owner"},
		"states of an invalid ref":      {states("refs/heads/a", "main"), `"main"`},
		"states of a ref twice":         {states("refs/heads/a", "refs/heads/a"), "refs/heads/a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
				err := c.do(t, db)
				if !errors.Is(err, ErrInvalid) || ClassOf(err) != Permanent || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 500 {
					t.Errorf("got %v, want one that says %q", err, c.says)
				}
				if n := len(f.prepares) + len(f.updates) + len(f.releases) + len(f.resolves); n != 0 {
					t.Errorf("the database was asked %d times", n)
				}
			})
		})
	}
	t.Run("more refs than a lock may have", func(t *testing.T) {
		f := &fake{}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			var many []Update
			for i := range MaxLockRefs + 1 {
				many = append(many, Update{Ref: fmt.Sprintf("refs/heads/%d", i), New: "1"})
			}
			wantIs(t, prepare("p", testAgent, many...)(t, db), ErrTooMany)
			if len(f.prepares) != 0 {
				t.Error("the database was asked")
			}
		})
	})
}

func TestWhatAnEarlierVersionPreparedIsFinishedHoweverManyRefsItHas(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		p := intents.Preparation{Project: "p", Op: "op", Owner: "eu/1", Token: 7}
		var done []string
		for i := range MaxLockRefs + 1 {
			p.Updates = append(p.Updates, Update{Ref: fmt.Sprintf("refs/heads/%d", i), New: "1"})
			done = append(done, p.Updates[i].Ref)
		}
		if err := db.Intents().Finish(t.Context(), p, done, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestAResolutionStopsAtTheFirstErrorAndReturnsWhatItEnded(t *testing.T) {
	f := &fake{resolve: func(n int, r driver.ResolveRequest) ([]bool, error) {
		if n == 2 {
			return nil, errCut
		}
		ended := make([]bool, len(r.Intents))
		ended[1] = true
		return ended, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		intents := make([]driver.Intent, 3*engine.PageSize)
		for i := range intents {
			intents[i] = driver.Intent{Project: "p", Ref: testRef, Token: Token(i)}
		}
		resolved, err := db.Intents().Resolve(t.Context(), intents, driver.TakeNew, "me", "reason")
		wantIs(t, err, ErrOutcomeUnknown)
		if len(resolved) != 1 || resolved[0].Token != 1 || len(f.resolves) != 2 {
			t.Errorf("%d requests, resolved %+v", len(f.resolves), resolved)
		}
		if r := f.resolves[0].arg; r.Decision != driver.TakeNew || r.By != "me" || r.Reason != "reason" || len(r.Intents) != engine.PageSize {
			t.Errorf("asked %q %q %q about %d", r.Decision, r.By, r.Reason, len(r.Intents))
		}
	})
}

func TestStatesComeInTheOrderOfTheirArguments(t *testing.T) {
	lock := &LockInfo{Token: 5}
	f := &fake{states: func(refs []string) ([]driver.State, error) {
		if !slices.IsSorted(refs) {
			t.Errorf("asked for %q", refs)
		}
		return []driver.State{{Ref: "refs/heads/a", Value: "1"}, {Ref: "refs/heads/c", Lock: lock}}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		got, err := db.Intents().States(t.Context(), "p", []string{"refs/heads/c", "refs/heads/b", "refs/heads/a"})
		want := []driver.State{{Ref: "refs/heads/c", Lock: lock}, {Ref: "refs/heads/b"}, {Ref: "refs/heads/a", Value: "1"}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestALockThatStandsForAnIntentIsNotPurgedNorAreThoseBesideIt(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		locks := []LockInfo{
			{Project: "p", Ref: "refs/heads/a", Age: time.Hour, StaleAfter: time.Minute},
			{Project: "p", Ref: "refs/heads/b", Age: 50 * 365 * 24 * time.Hour, StaleAfter: driver.NeverStale},
		}
		if locks[1].Stale() || !locks[1].Intended() || locks[0].Intended() {
			t.Errorf("%+v", locks)
		}
		for _, opts := range [][]operator.PurgeOption{nil, {operator.PurgeFresh()}} {
			_, err := db.Operator().Purge(t.Context(), locks, opts...)
			var locked *LockedError
			if !errors.As(err, &locked) || locked.Holders[0].Ref != "refs/heads/b" || !strings.Contains(err.Error(), "locks resolve") {
				t.Errorf("got %v", err)
			}
		}
		if len(f.releases) != 0 {
			t.Errorf("released %+v", f.releases)
		}
	})
}
