package refdb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

const before = "refs/heads/before"

// A rewound driver is on one database until its first write was acknowledged, and then on another, which is what
// the first one has gone back to. The look at what was written before waits until it may
// go on, and finds that there.
type rewound struct {
	refdb.Driver
	to      refdb.Driver
	written chan struct{} // closed with the first write
	looks   chan chan struct{}
}

func (d *rewound) now() refdb.Driver {
	select {
	case <-d.written:
		return d.to
	default:
		return d.Driver
	}
}

func (d *rewound) Look(ctx context.Context, witness string, known []refdb.Known) (refdb.Looked, error) {
	if len(known) > 0 && known[0].Ref == before && d.now() == d.Driver {
		goOn := make(chan struct{})
		d.looks <- goOn
		<-goOn
		known = nil // of what is left
	}
	return d.now().Look(ctx, witness, known)
}

func (d *rewound) Report(ctx context.Context, r refdb.Report) (refdb.Admission, error) {
	return d.now().Report(ctx, r)
}

func (d *rewound) Update(ctx context.Context, r refdb.UpdateRequest) error {
	if r.Updates[0].Ref != before {
		defer close(d.written)
	}
	return d.Driver.Update(ctx, r)
}

func (d *rewound) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	defer close(d.written)
	return d.Driver.Prepare(ctx, r)
}

// A comparison that has read what is known, and then waits while something is acknowledged and
// the database goes back, finds the new server in order. Whoever was acknowledged compares again.
func TestWhatIsAcknowledgedDuringAComparisonIsComparedBeforeItIsTold(t *testing.T) {
	updates := []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}}
	for name, write := range map[string]func(*refdb.DB) error{
		"update": func(db *refdb.DB) error { return db.Update(t.Context(), "p", updates) },
		"prepare": func(db *refdb.DB) error {
			_, err := db.Prepare(t.Context(), "p", updates, "git")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &rewound{Driver: memory.New().Open(), to: memory.New().Open(), written: make(chan struct{}), looks: make(chan chan struct{})}
			defer d.to.Close()
			db, err := refdb.New(d, refdb.Options{Site: "a"})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.Update(t.Context(), "p", []refdb.Update{{Ref: before, New: updates[0].New}}); err != nil {
				t.Fatal(err)
			}
			compared := make(chan error, 1)
			go func() {
				_, err := db.Compare(t.Context())
				compared <- err
			}()
			first := <-d.looks
			told := make(chan error, 1)
			go func() { told <- write(db) }()
			<-d.written
			close(first)
			if err := <-compared; err != nil {
				t.Fatal(err)
			}
			err = <-told
			if !errors.Is(err, refdb.ErrOutcomeUnknown) || !errors.Is(err, refdb.ErrLostChanges) {
				t.Errorf("it is lost, and was acknowledged: %v", err)
			}
		})
	}
}

// A dropping driver lets a comparison meet a request that drops an intent.
type dropping struct {
	refdb.Driver
	looks   func() // is called before the intent is looked up
	dropped func() // is called when it was dropped, before that is told
	refuses error  // is what a request is told, unless nil; it is not carried out
	refused func() // carries out the one that was refused
}

func (d *dropping) Look(ctx context.Context, witness string, known []refdb.Known) (refdb.Looked, error) {
	if looks := d.looks; looks != nil && len(known) > 0 && known[0].Token != 0 {
		d.looks = nil
		looks()
	}
	return d.Driver.Look(ctx, witness, known)
}

func (d *dropping) Finish(ctx context.Context, r refdb.FinishRequest) error {
	if d.refuses != nil {
		d.refused = func() { d.Driver.Finish(ctx, r) }
		return d.refuses
	}
	err := d.Driver.Finish(ctx, r)
	if d.dropped != nil {
		d.dropped()
	}
	return err
}

func (d *dropping) Forget(ctx context.Context, intents []refdb.LockID) error {
	if d.refuses != nil {
		d.refused = func() { d.Driver.Forget(ctx, intents) }
		return d.refuses
	}
	err := d.Driver.Forget(ctx, intents)
	if d.dropped != nil {
		d.dropped()
	}
	return err
}

// drops are the ways to end an intent without a change.
func drops(t *testing.T) map[string]func(*refdb.DB, refdb.Preparation) error {
	return map[string]func(*refdb.DB, refdb.Preparation) error{
		"finish": func(db *refdb.DB, p refdb.Preparation) error {
			return db.Finish(t.Context(), p, nil, []string{"refs/heads/a"})
		},
		"forget": func(db *refdb.DB, _ refdb.Preparation) error {
			for i, err := range db.Intents(t.Context(), refdb.IntentFilter{}) {
				if err == nil {
					_, err = db.Resolve(t.Context(), []refdb.Intent{i}, refdb.KeepOld, "somebody", "test")
				}
				if err == nil {
					err = db.Forget(t.Context(), []refdb.Intent{i})
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// announced returns an intent of a process.
func announced(t *testing.T, d refdb.Driver) (*refdb.DB, refdb.Preparation) {
	t.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	p, err := db.Prepare(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}}, "git")
	if err != nil {
		t.Fatal(err)
	}
	return db, p
}

// What this process drops is not lost, whenever a comparison looks.
func TestAnIntentThatIsBeingDroppedIsNotTakenForLost(t *testing.T) {
	for name, drop := range drops(t) {
		for _, meets := range []string{"between the journal and the look", "before the reply"} {
			t.Run(name+" "+meets, func(t *testing.T) {
				d := &dropping{Driver: memory.New().Open()}
				db, p := announced(t, d)
				var a refdb.Admission
				var dropped, compared error
				if meets == "before the reply" {
					d.dropped = func() { a, compared = db.Compare(t.Context()) }
					dropped = drop(db, p)
				} else {
					d.looks = func() { dropped = drop(db, p) }
					a, compared = db.Compare(t.Context())
				}
				if dropped != nil || compared != nil || !a.Admitted {
					t.Errorf("%v; %+v, %v", dropped, a, compared)
				}
			})
		}
	}
}

// A recovery asks every site what became of the intents that it knows.
func TestAnIntentThatAHaltedDatabaseRefusesToDropIsStillKnown(t *testing.T) {
	for name, drop := range drops(t) {
		for _, refusal := range []error{refdb.ErrLostChanges, refdb.ErrNotAdmitted} {
			t.Run(name+" "+refusal.Error(), func(t *testing.T) {
				d := &dropping{Driver: memory.New().Open(), refuses: refusal}
				db, p := announced(t, d)
				if err := drop(db, p); !errors.Is(err, refusal) {
					t.Fatal(err)
				}
				d.refused() // the database lost it when it went back
				if a, err := db.Compare(t.Context()); err != nil || a.Lost != 1 {
					t.Errorf("%+v, %v", a, err)
				}
			})
		}
	}
}
