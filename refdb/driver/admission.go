package driver

import (
	"context"
	"slices"
	"time"
)

// A Known is what the database acknowledged, or showed, to a process: a change or, if Token is not
// 0, a pending intent of that token.
type Known struct {
	Project, Ref string
	Old, New     Value
	Op           string // the operation; of an intent, the one that recorded it
	Owner        string
	By           string
	Token        Token
	Agent        string // of an intent: who makes the move. The database does not record it.
	// At is about when it was made: by the database's clock where that is known, else by this
	// machine's.
	At time.Time
	// Move says what became of the move that an intent announced.
	Move Move
	// Word is zero unless this is an intent of another site that the process carries in a
	// [Testimony]: then it is the word of that testimony.
	Word time.Time
}

// A Move says whether what an intent announced was done outside of the database.
type Move string

const (
	MoveUnknown Move = ""
	MoveMade    Move = "made"
	MoveUnmade  Move = "unmade" // and will not be
)

// Looked is what a look at a database has found.
type Looked struct {
	Server  string // that looked: its identity, read in the same snapshot
	Missing []int  // indices of those that the database has neither as a change nor as an intent
}

// A Report is what a witness found at a server.
type Report struct {
	// Witness is the name of a site, which the report registers; "" for a process that nobody waits
	// for.
	Witness string
	Owner   string // the process that reports
	Server  string // the report counts only if the database is still served by this one
	Missing []Known
	// Open: the Move of some missing intents will be known later. The missing are recorded, and the
	// witness is still awaited.
	Open bool
	// Away: the witness ends, and nobody needs to wait for it.
	Away bool
	// Marks are what the process knows of all witnesses. If the database has an older mark of one,
	// it went back to a time before that: the witness is waited for.
	Marks []WitnessMark
	// Closes are the sites about which the witness begins to testify. If the server is admitted, each
	// of their rows that is live, names the server and has no word gets one.
	Closes []string
	// Testimonies are the testimonies that the witness has noted.
	Testimonies []Testimony
	// Excused are sites that the witness does not wait for, as [Synchronous] permits. They are ignored
	// under another policy, and if something is lost.
	Excused []string
	// Policy is the latest policy that the process knows. If it is [Wait], and later than the
	// database's, it replaces that: the database went back to a time before the policy was set.
	Policy PolicyMark
}

// A Testimony is what a site holds on its disk on behalf of a silent site: everything that the
// silent site may know. So no server has to wait for the silent site.
type Testimony struct {
	Site string    // the silent site
	Word time.Time // of the silent site's row
	// Given: the silent site's row was [Witness.Testified] with this word.
	Given bool
	// Intents are the pending intents of the silent site. The Word of each is the testimony's.
	Intents []Known
}

// A Policy says for which sites a new server waits.
type Policy string

const (
	// Wait: for every site that is neither away nor left out.
	Wait Policy = "wait"
	// Synchronous: not for a site that was silent when the server was replaced, nor, once its
	// stale-after has passed, for a site that has not reported. An operator who sets it promises that
	// a new server never lacks an acknowledged commit.
	Synchronous Policy = "synchronous"
)

// A PolicyMark says since when a policy is in force, by the database's clock: zero if nobody set one.
type PolicyMark struct {
	Policy Policy
	Since  time.Time
}

// A WitnessMark says since when a witness is what it is: live, away or left out. Times of a witness
// only grow.
type WitnessMark struct {
	Name  string
	Since time.Time
}

// A Witness is a site that compares what it knows with what the database has.
type Witness struct {
	Name    string
	Server  string    // that it compared last
	Seen    time.Time // when it reported last
	Away    bool
	Without bool      // an operator recovered the database without it, and it has not come back
	Since   time.Time // of the latest change of Away or Without, or of its registration
	// Word is zero unless another site testifies about this site. Then it is the time at which the
	// testimony began, later than Since and Seen were then. See Closing and Testified.
	Word time.Time
}

// Closing reports whether another site is about to testify about w. Until w has reported, w neither
// records nor finishes intents. w is awaited as before.
func (w Witness) Closing() bool { return !w.Away && !w.Without && !w.Word.IsZero() }

// Testified reports whether another site has testified that w is away.
func (w Witness) Testified() bool { return w.Away && !w.Word.IsZero() }

// Barred reports whether intents of w are neither recorded nor finished before it has reported.
func (w Witness) Barred() bool { return w.Away || w.Without || !w.Word.IsZero() }

// An Admission says whether the database may be written.
type Admission struct {
	Server   string // that executed the request
	Admitted bool
	Halted   bool // lost changes stand that nobody has decided about
	// Lost is how many those are.
	Lost      int
	Witnesses []Witness // in the order of their names
	Policy    PolicyMark
}

// Waiting returns the witnesses that have not compared the server yet, and are waited for.
func (a Admission) Waiting() (names []string) {
	for _, w := range a.Witnesses {
		if w.Awaited(a.Server) {
			names = append(names, w.Name)
		}
	}
	return names
}

// Awaited reports whether a server is not admitted before w has compared it.
func (w Witness) Awaited(server string) bool { return !w.Away && !w.Without && w.Server != server }

// Witness returns the witness of that name; its Name is "" if there is none.
func (a Admission) Witness(name string) (w Witness) {
	if i := slices.IndexFunc(a.Witnesses, func(w Witness) bool { return w.Name == name }); i >= 0 {
		return a.Witnesses[i]
	}
	return w
}

// Marks returns those of all witnesses.
func (a Admission) Marks() (marks []WitnessMark) {
	for _, w := range a.Witnesses {
		marks = append(marks, WitnessMark{w.Name, w.Since})
	}
	return marks
}

// May reports whether the witness of that name may act by what the database has: the server is
// admitted, and it compared that itself.
func (a Admission) May(witness string) bool {
	w := a.Witness(witness)
	return a.Admitted && w.Name != "" && w.Server == a.Server && !w.Barred()
}

// Err returns nil if the database may be written, else what is in the way.
func (a Admission) Err() error {
	switch {
	case a.Admitted:
		return nil
	case a.Halted:
		return ErrLostChanges
	}
	return &NotAdmittedError{slices.DeleteFunc(slices.Clone(a.Witnesses), func(w Witness) bool { return !w.Awaited(a.Server) })}
}

// A NotAdmittedError lists the witnesses that have not compared a server yet, so that it is not
// admitted. It wraps [ErrNotAdmitted].
type NotAdmittedError struct {
	Awaited []Witness
}

func (e *NotAdmittedError) Error() string {
	text := ErrNotAdmitted.Error()
	if len(e.Awaited) > 0 {
		var names []string
		for _, w := range e.Awaited {
			names = append(names, w.Name)
		}
		text += "; " + Enumerate("waiting for the site daemons of", names)
	}
	return text + "; see `refdbctl recover --status`"
}

func (e *NotAdmittedError) Unwrap() error { return ErrNotAdmitted }

// A Fate is what became of a lost change.
type Fate string

const (
	Undecided Fate = ""        // the database is halted because of it
	Rewritten Fate = "again"   // a recovery wrote it again
	Opposed   Fate = "opposed" // not: the ref held another value, an intent stood in the way, or nobody knew about the move
	Dropped   Fate = "dropped" // an intent that is gone, whose move was not made
	Late      Fate = "late"    // reported by a witness that a recovery went without
)

// A LostChange is a change, or a pending intent, that a witness knows and the database does not
// have.
type LostChange struct {
	Known
	Witness  string // or the process that reported it
	Fate     Fate
	Reported time.Time
}

// A LostQuery selects a page of lost changes.
type LostQuery struct {
	Decided bool       // decided ones too
	After   LostCursor // only what comes after this; zero to start
	Limit   int        // at most this many
}

// A LostCursor is the key of a lost change.
type LostCursor struct{ Project, Ref, Op string }

// Cursor is the key of k among lost changes.
func (k Known) Cursor() LostCursor { return LostCursor{k.Project, k.Ref, k.Op} }

// A LostPage is a part of a listing. It may be short, or empty, and not be the last.
type LostPage struct {
	Lost []LostChange
	Next LostCursor // LostQuery.After of the next page; zero if there is none
}

// A RecoverRequest is one step of a recovery.
type RecoverRequest struct {
	Epoch   string   // the random ID of the epoch that the last step begins
	By      string   // who recovers the database
	Reason  string   // why
	Without []string // witnesses not to wait for
	Limit   int      // write no more refs than this in the step
}

// MayBegin reports whether no other witnesses are awaited than those of r.Without.
func (r RecoverRequest) MayBegin(a Admission) bool {
	return !slices.ContainsFunc(a.Waiting(), func(name string) bool { return !slices.Contains(r.Without, name) })
}

// Recovered is the answer to a RecoverRequest.
type Recovered struct {
	Admission // after the step
	// Decided are the lost changes that this step dealt with.
	Decided []LostChange
	// Done: the server is admitted. If it is false and RecoverRequest.MayBegin is, another step is
	// needed.
	Done bool
}

// An AdmissionStore keeps watch over the server: each of the methods of the other roles that writes
// compares it, in its transaction, with the one that is admitted. If it is another, or none is, the
// method writes nothing and returns ErrNotAdmitted. So does States, because sites move refs by what
// it says. Methods of the HistoryStore say so in HistoryState.Admitted. On Cloud Spanner the
// comparison is some seconds old.
//
// Prepare, Finish and Revoke also return ErrNotAdmitted if the owner's site is [Witness.Barred]: the
// server may be admitted, but this site has not compared it. They read the site's row in their
// transaction, on all databases. So a transaction that bars a site comes after everything that the
// site began before, and before everything that it begins later.
type AdmissionStore interface {
	// Admission returns the state, as of one snapshot.
	Admission(ctx context.Context) (Admission, error)

	// Look looks for the row of each known change in the history, by project, ref and the ID of the
	// operation. That of an intent may also be followed by "-" and more. A change is there, too, if
	// it is an intent that is pending or decided, if a row in the table of lost changes has another
	// fate than Undecided, or if it may have been pruned: it is not later than the latest change
	// that was pruned and than the last report of witness ("": than the former alone).
	Look(ctx context.Context, witness string, known []Known) (Looked, error)

	// Report records a report, if r.Server is the server, else it returns ErrUnavailable, in this
	// order:
	//   - rules.Report decides what becomes of the rows of witnesses, and which of r.Missing count.
	//   - Those of r.Missing that count, and that Look would still not find, become lost changes: Late, if
	//     a recovery went without r.Witness, else Undecided. If a change is already recorded as undecided, its
	//     Move is updated if r knows it and the reporter recorded the change or is the site of its owner.
	//   - r.Witness has compared the server, unless r.Open, and is live, or away.
	//   - If there are undecided lost changes, no server is admitted until a recovery ends. Else this one is, unless
	//     a witness is awaited; then it is not, even if it was.
	Report(ctx context.Context, r Report) (Admission, error)

	// SetPolicy sets the policy, with the database's time, and returns the resulting state. The server
	// need not be admitted.
	SetPolicy(ctx context.Context, p Policy) (Admission, error)

	// LostChanges returns a page of lost changes in byte order of project, ref and operation.
	LostChanges(ctx context.Context, q LostQuery) (LostPage, error)

	// Recover does one step of a recovery, unless the server is admitted. While a witness is
	// awaited that is not one of r.Without it does nothing. The last step, with which all lost
	// changes are decided, also marks those of r.Without that are still awaited, begins the epoch,
	// ends all locks that stand for no intent, makes tokens larger than all before by the clock,
	// and admits the server.
	Recover(ctx context.Context, r RecoverRequest) (Recovered, error)
}
