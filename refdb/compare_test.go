package refdb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/recovery"
)

const before = "refs/heads/before"

// A rewound driver is on one database until its first write was made there, and then on another,
// which is what the first one has gone back to: it has all that was written before. The reply to
// the write comes later.
type rewound struct {
	refdb.Driver
	to      refdb.Driver
	written chan struct{} // closed with the write
	reply   chan struct{} // closed when its reply may come
	stays   bool          // the first database still answers looks at that write alone
}

func (d *rewound) now() refdb.Driver {
	select {
	case <-d.written:
		return d.to
	default:
		return d.Driver
	}
}

func (d *rewound) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	if d.stays && len(known) == 1 && known[0].Ref != before {
		return d.Driver.Look(ctx, witness, known)
	}
	known = slices.DeleteFunc(slices.Clone(known), func(k driver.Known) bool { return k.Ref == before }) // both have that
	return d.now().Look(ctx, witness, known)
}

func (d *rewound) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	return d.now().Report(ctx, r)
}

func (d *rewound) Update(ctx context.Context, r driver.UpdateRequest) error {
	err := d.Driver.Update(ctx, r)
	if r.Updates[0].Ref != before {
		close(d.written)
		<-d.reply
	}
	return err
}

func (d *rewound) Prepare(ctx context.Context, r driver.PrepareRequest) (driver.Prepared, error) {
	p, err := d.Driver.Prepare(ctx, r)
	close(d.written)
	<-d.reply
	return p, err
}

// A comparison that does not know yet what is about to be acknowledged finds the new server in
// order. Whoever is acknowledged then looks there, and compares again.
func TestWhatIsAcknowledgedDuringAComparisonIsComparedBeforeItIsTold(t *testing.T) {
	updates := []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}}
	update := func(db *refdb.DB) error { return db.Update(t.Context(), "p", updates) }
	prepare := func(db *refdb.DB) error {
		_, err := db.Intents().Prepare(t.Context(), "p", updates, "git")
		return err
	}
	for name, c := range map[string]struct {
		write func(*refdb.DB) error
		stays bool
	}{
		"update": {update, false},
		"update, and the first server still answers": {update, true},
		"prepare": {prepare, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &rewound{Driver: memory.New().Open(), to: memory.New().Open(), written: make(chan struct{}), reply: make(chan struct{}), stays: c.stays}
			defer d.to.Close()
			db, err := refdb.New(d, refdb.Options{Site: "a"})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.Update(t.Context(), "p", []refdb.Update{{Ref: before, New: updates[0].New}}); err != nil {
				t.Fatal(err)
			}
			told := make(chan error, 1)
			go func() { told <- c.write(db) }()
			<-d.written
			if a, err := db.Recovery().Compare(t.Context()); err != nil || !a.Admitted {
				t.Fatalf("%+v, %v", a, err)
			}
			close(d.reply)
			err = <-told
			if !errors.Is(err, refdb.ErrOutcomeUnknown) || !errors.Is(err, refdb.ErrLostChanges) {
				t.Errorf("it is lost, and was acknowledged: %v", err)
			}
		})
	}
}

// A counting driver lets the looks at what was written before wait, and counts comparisons.
type counting struct {
	refdb.Driver
	looks   chan chan struct{}
	reports atomic.Int64
	halted  bool // so says each report
}

func (d *counting) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	if slices.ContainsFunc(known, func(k driver.Known) bool { return k.Ref == before }) {
		goOn := make(chan struct{})
		d.looks <- goOn
		<-goOn
	}
	return d.Driver.Look(ctx, witness, known)
}

func (d *counting) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	d.reports.Add(1)
	if d.halted {
		return driver.Admission{Server: r.Server, Halted: true}, nil
	}
	return d.Driver.Report(ctx, r)
}

// whileComparing calls write while a comparison of a new DB on d waits. It returns what write does
// once the comparison goes on.
func whileComparing(t *testing.T, d *counting, write func(*refdb.DB) error) error {
	t.Helper()
	d.Driver, d.looks = memory.New().Open(), make(chan chan struct{})
	db, err := refdb.New(d, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(t.Context(), "p", []refdb.Update{{Ref: before, New: "1111111111111111111111111111111111111111"}}); err != nil {
		t.Fatal(err)
	}
	looks := make(chan struct{})
	go func() { // each look goes on at once, but the first
		first := <-d.looks
		<-looks
		close(first)
		for next := range d.looks {
			close(next)
		}
	}()
	compared, told := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := db.Recovery().Compare(t.Context())
		compared <- err
	}()
	synctest.Wait()
	go func() { told <- write(db) }()
	synctest.Wait()
	select {
	case err := <-told:
		t.Errorf("it is told although another server may be admitted: %v", err)
	default:
	}
	close(looks)
	if err := <-compared; err != nil {
		t.Error(err)
	}
	err = <-told
	close(d.looks)
	return err
}

// Else those who write without a pause would compare without end, each because of the one before.
func TestWhoWritesDuringAComparisonLooksThatUpAndComparesNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d counting
		err := whileComparing(t, &d, func(db *refdb.DB) error {
			return db.Update(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}})
		})
		if err != nil || d.reports.Load() != 1 {
			t.Errorf("%v, after %d comparisons", err, d.reports.Load())
		}
	})
}

func TestNothingIsPreparedByAProcessWhoseComparisonHasHaltedTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := counting{halted: true}
		err := whileComparing(t, &d, func(db *refdb.DB) error {
			_, err := db.Intents().Prepare(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}}, "git")
			return err
		})
		if !errors.Is(err, refdb.ErrOutcomeUnknown) || !errors.Is(err, refdb.ErrLostChanges) {
			t.Errorf("got %v", err)
		}
	})
}

// A dropping driver lets a comparison meet a request that drops an intent.
type dropping struct {
	refdb.Driver
	looks   func() // is called before the intent is looked up
	dropped func() // is called when it was dropped, before that is told
	refuses error  // is what a request is told, unless nil; it is not carried out
	refused func() // carries out the one that was refused
}

func (d *dropping) Look(ctx context.Context, witness string, known []driver.Known) (driver.Looked, error) {
	if looks := d.looks; looks != nil && len(known) > 0 && known[0].Token != 0 {
		d.looks = nil
		looks()
	}
	return d.Driver.Look(ctx, witness, known)
}

func (d *dropping) Finish(ctx context.Context, r driver.FinishRequest) error {
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

func (d *dropping) Forget(ctx context.Context, intents []driver.LockID) error {
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
func drops(t *testing.T) map[string]func(*refdb.DB, intents.Preparation) error {
	return map[string]func(*refdb.DB, intents.Preparation) error{
		"finish": func(db *refdb.DB, p intents.Preparation) error {
			return db.Intents().Finish(t.Context(), p, nil, []string{"refs/heads/a"})
		},
		"forget": func(db *refdb.DB, _ intents.Preparation) error {
			for i, err := range db.Intents().All(t.Context(), driver.IntentFilter{}) {
				if err == nil {
					_, err = db.Intents().Resolve(t.Context(), []driver.Intent{i}, driver.KeepOld, "somebody", "test")
				}
				if err == nil {
					err = db.Intents().Forget(t.Context(), []driver.Intent{i})
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
func announced(t *testing.T, d refdb.Driver) (*refdb.DB, intents.Preparation) {
	t.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	p, err := db.Intents().Prepare(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}}, "git")
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
				var a driver.Admission
				var dropped, compared error
				if meets == "before the reply" {
					d.dropped = func() { a, compared = db.Recovery().Compare(t.Context()) }
					dropped = drop(db, p)
				} else {
					d.looks = func() { dropped = drop(db, p) }
					a, compared = db.Recovery().Compare(t.Context())
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
				if a, err := db.Recovery().Compare(t.Context()); err != nil || a.Lost != 1 {
					t.Errorf("%+v, %v", a, err)
				}
			})
		}
	}
}

// A forgetful driver loses the reply to each first request of a comparison and of a recovery, and
// says of the first update that the server is not admitted.
type forgetful struct {
	refdb.Driver
	reported, recovered, updated atomic.Bool
	epochs                       []string
}

func (d *forgetful) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	a, err := d.Driver.Report(ctx, r)
	if err == nil && !d.reported.Swap(true) {
		err = fmt.Errorf("lost: %w", refdb.ErrOutcomeUnknown)
	}
	return a, err
}

func (d *forgetful) Recover(ctx context.Context, r driver.RecoverRequest) (driver.Recovered, error) {
	d.epochs = append(d.epochs, r.Epoch)
	answer, err := d.Driver.Recover(ctx, r)
	if err == nil && !d.recovered.Swap(true) {
		err = fmt.Errorf("lost: %w", refdb.ErrOutcomeUnknown)
	}
	return answer, err
}

func (d *forgetful) Update(ctx context.Context, r driver.UpdateRequest) error {
	if !d.updated.Swap(true) {
		return refdb.ErrNotAdmitted
	}
	return d.Driver.Update(ctx, r)
}

// A request that was refused has an outcome that is known, whatever became of the comparison that
// follows.
func TestTheLostReplyToAReportIsNoUnknownOutcomeOfAnUpdate(t *testing.T) {
	d := &forgetful{Driver: memory.New().Open()}
	db, err := refdb.New(d, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/a", New: "1111111111111111111111111111111111111111"}}); err != nil {
		t.Error(err)
	}
	if !d.reported.Load() {
		t.Error("no reply was lost")
	}
}

func TestRecoverGoesOnAfterALostReply(t *testing.T) {
	d := &forgetful{Driver: memory.New().Open()}
	db, err := refdb.New(d, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if r, err := db.Recovery().Recover(t.Context(), recovery.Options{By: "somebody", Reason: "a test"}); err != nil || !r.Done {
		t.Errorf("%+v, %v", r, err)
	}
	if !d.recovered.Load() {
		t.Error("no reply was lost")
	}
	// The first may have begun at a server that has been replaced since.
	if len(d.epochs) != 2 || d.epochs[0] == d.epochs[1] {
		t.Errorf("epochs of the names %q", d.epochs)
	}
}

// An interrupted driver does not learn what became of a report, as its context ended meanwhile.
type interrupted struct {
	refdb.Driver
	interrupt func()
}

func (d *interrupted) Report(ctx context.Context, _ driver.Report) (driver.Admission, error) {
	d.interrupt()
	return driver.Admission{}, fmt.Errorf("%w: %w", refdb.ErrOutcomeUnknown, ctx.Err())
}

func TestAComparisonThatIsInterruptedSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	db, err := refdb.New(&interrupted{memory.New().Open(), cancel}, refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Recovery().Compare(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, refdb.ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
}
