package driver

import (
	"context"
	"slices"
	"time"
)

// A Known is a change that the database has acknowledged or shown to a process or, if Token is not
// 0, a pending intent with that token.
type Known struct {
	Project, Ref string
	Old, New     Value
	Op           string // the operation; of an intent, the one that recorded it
	Owner        string
	By           string
	Token        Token
	Agent        string // of an intent: the agent that makes the move; the database does not record it
	// At is the approximate time of the change or intent: by the database's clock if that is known,
	// otherwise by this machine's.
	At time.Time
	// Move is the outcome of the move that an intent announced.
	Move Move
	// Word is zero unless this is an intent of another site from a [Testimony] that the process
	// holds. Then it is the Word of that testimony.
	Word time.Time
}

// A Move says whether the move that an intent announced was made outside the database.
type Move string

const (
	MoveUnknown Move = ""
	MoveMade    Move = "made"
	MoveUnmade  Move = "unmade" // and will not be made
)

// Looked is the result of [AdmissionStore].Look.
type Looked struct {
	Server  string // the identity of the server that answered, read in the same snapshot
	Missing []int  // indices of the known changes that the database has neither as a change nor as an intent
}

// A Report is the result of a witness's comparison with a server.
type Report struct {
	// Witness is the name of a site, which the report registers; "" for a process that no server
	// waits for.
	Witness string
	Owner   string // the reporting process
	Server  string // the report counts only if this is still the database's server
	Missing []Known
	// Open says that the Move of some missing intents will only be known later. The missing changes
	// and intents are recorded, and the witness is still awaited.
	Open bool
	// Away says that the witness ends, and that no server needs to wait for it.
	Away bool
	// Marks are the marks of all witnesses that the process knows. If the database has an older
	// mark of a witness, it went back to a time before that mark, and the witness is awaited.
	Marks []WitnessMark
	// Closes are the sites about which the witness begins to testify. If the server is admitted,
	// each of these sites' rows that is live, names the server and has no Word gets a Word.
	Closes []string
	// Testimonies are the testimonies that the witness has noted.
	Testimonies []Testimony
	// Excused are sites that the witness does not wait for, as [Synchronous] permits. They are
	// ignored under another policy, and if a change is lost.
	Excused []string
	// Policy is the latest policy that the process knows. If it is [Wait] and later than the
	// database's policy, it replaces the database's policy: the database went back to a time before
	// the policy was set.
	Policy PolicyMark
}

// A Testimony is the record that a site keeps on its disk on behalf of a silent site. It covers
// everything that the silent site may know, so that no server has to wait for the silent site.
type Testimony struct {
	Site string    // the silent site
	Word time.Time // the Word of the silent site's row
	// Given says that the silent site's row was [Witness.Testified] with this Word.
	Given bool
	// Intents are the pending intents of the silent site. The Word of each is the testimony's.
	Intents []Known
}

// A Policy says for which sites a new server waits.
type Policy string

const (
	// Wait waits for every site that is neither away nor left out.
	Wait Policy = "wait"
	// Synchronous waits neither for a site that was silent when the server was replaced nor, once
	// the site's stale-after has passed, for a site that has not reported. An operator who sets it
	// promises that a new server never lacks an acknowledged commit.
	Synchronous Policy = "synchronous"
)

// A PolicyMark is a policy and the time since which it is in force, by the database's clock. It is
// zero if no policy was set.
type PolicyMark struct {
	Policy Policy
	Since  time.Time
}

// A WitnessMark is the time of a witness's latest change of state: live, away or left out. The
// times of a witness only increase.
type WitnessMark struct {
	Name  string
	Since time.Time
}

// A Witness is a site that compares the changes that it knows with those in the database.
type Witness struct {
	Name    string
	Server  string    // the server that it compared last
	Seen    time.Time // the time of its last report
	Away    bool
	Without bool      // an operator recovered the database without it, and it has not come back
	Since   time.Time // of the latest change of Away or Without, or of its registration
	// Word is zero unless another site testifies about this site. Then it is the time at which the
	// testimony began, which is later than Since and Seen were at that moment. See Closing and
	// Testified.
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
	Server   string // the server that executed the request
	Admitted bool
	Halted   bool // there are lost changes that no recovery has decided about
	// Lost is the number of these lost changes.
	Lost      int
	Witnesses []Witness // in the order of their names
	Policy    PolicyMark
}

// Waiting returns the names of the awaited witnesses: see [Witness.Awaited].
func (a Admission) Waiting() (names []string) {
	for _, w := range a.Witnesses {
		if w.Awaited(a.Server) {
			names = append(names, w.Name)
		}
	}
	return names
}

// Awaited reports whether server waits for w: it is not admitted before w has compared it.
func (w Witness) Awaited(server string) bool { return !w.Away && !w.Without && w.Server != server }

// Witness returns the witness with the given name; its Name is "" if there is none.
func (a Admission) Witness(name string) (w Witness) {
	if i := slices.IndexFunc(a.Witnesses, func(w Witness) bool { return w.Name == name }); i >= 0 {
		return a.Witnesses[i]
	}
	return w
}

// Marks returns the marks of all witnesses.
func (a Admission) Marks() (marks []WitnessMark) {
	for _, w := range a.Witnesses {
		marks = append(marks, WitnessMark{w.Name, w.Since})
	}
	return marks
}

// May reports whether the named witness may act on the database's contents: the server is admitted,
// and the witness itself has compared it.
func (a Admission) May(witness string) bool {
	w := a.Witness(witness)
	return a.Admitted && w.Name != "" && w.Server == a.Server && !w.Barred()
}

// Err returns nil if the database may be written. Otherwise the error is ErrLostChanges or a
// *NotAdmittedError.
func (a Admission) Err() error {
	switch {
	case a.Admitted:
		return nil
	case a.Halted:
		return ErrLostChanges
	}
	return &NotAdmittedError{slices.DeleteFunc(slices.Clone(a.Witnesses), func(w Witness) bool { return !w.Awaited(a.Server) })}
}

// A NotAdmittedError lists the witnesses that a server waits for before it is admitted. It wraps
// [ErrNotAdmitted].
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

// A Fate is the outcome of a lost change.
type Fate string

const (
	Undecided Fate = ""      // the database is halted because of it
	Rewritten Fate = "again" // a recovery wrote it again
	// Opposed changes were not written again: the ref held another value, an intent was pending, or the
	// outcome of the move was unknown.
	Opposed Fate = "opposed"
	Dropped Fate = "dropped" // a lost intent whose move was not made
	Late    Fate = "late"    // reported by a witness that a recovery had left out
)

// A LostChange is a change, or a pending intent, that a witness knows and that is missing from the
// database.
type LostChange struct {
	Known
	Witness  string // the witness or process that reported it
	Fate     Fate
	Reported time.Time
}

// A LostQuery selects a page of lost changes.
type LostQuery struct {
	Decided bool       // decided ones too
	After   LostCursor // only lost changes after this key; zero to start
	Limit   int        // at most this many
}

// A LostCursor is the key of a lost change.
type LostCursor struct{ Project, Ref, Op string }

// Cursor returns the key of k among lost changes.
func (k Known) Cursor() LostCursor { return LostCursor{k.Project, k.Ref, k.Op} }

// A LostPage is a part of a listing. A page that is short or empty need not be the last one.
type LostPage struct {
	Lost []LostChange
	Next LostCursor // LostQuery.After of the next page; zero if there is none
}

// A RecoverRequest is one step of a recovery.
type RecoverRequest struct {
	Epoch   string   // the random ID of the epoch that the last step begins
	By      string   // the operator who recovers the database
	Reason  string   // the operator's reason
	Without []string // the witnesses that the recovery leaves out
	Limit   int      // the step writes at most this many refs
}

// MayBegin reports whether all awaited witnesses are in r.Without.
func (r RecoverRequest) MayBegin(a Admission) bool {
	return !slices.ContainsFunc(a.Waiting(), func(name string) bool { return !slices.Contains(r.Without, name) })
}

// Recovered is the answer to a RecoverRequest.
type Recovered struct {
	Admission // after the step
	// Decided are the lost changes that this step has decided about.
	Decided []LostChange
	// Done says that the server is admitted. If Done is false and RecoverRequest.MayBegin returns
	// true, another step is needed.
	Done bool
}

// An AdmissionStore keeps track of the admitted server. Every method of the other roles that writes
// compares its server, in its transaction, with the admitted server. If another server is admitted,
// or none is, the method writes nothing and returns ErrNotAdmitted. States does the same, because
// sites move refs according to its result. Methods of the HistoryStore report the comparison in
// HistoryState.Admitted. On Cloud Spanner the comparison may be some seconds old.
//
// Prepare, Finish and Revoke also return ErrNotAdmitted if the owner's site is [Witness.Barred]:
// the server may be admitted, but this site has not compared it. On all databases, they read the
// site's row in their transaction. So a transaction that bars a site is ordered after all
// transactions that the site began earlier, and before all transactions that it begins later.
type AdmissionStore interface {
	// Admission returns the state, as of one snapshot.
	Admission(ctx context.Context) (Admission, error)

	// Look searches the history for the row of each known change, by project, ref and the ID of the
	// operation. The row of an intent may also have an ID that continues with "-" and more. A
	// change also counts as found if it is an intent that is pending or decided, if a row in the
	// table of lost changes has a fate other than Undecided, or if it may have been pruned: it is
	// no later than both the latest pruned change and the last report of witness. If witness is "",
	// only the latest pruned change is compared.
	Look(ctx context.Context, witness string, known []Known) (Looked, error)

	// Report records a report if r.Server is the server; otherwise it returns ErrUnavailable. It
	// takes these steps, in this order:
	//   - rules.Report decides how the rows of witnesses change, and which of r.Missing count.
	//   - Those of r.Missing that count, and that Look would still not find, become lost changes:
	//     Late if a recovery had left out r.Witness, otherwise Undecided. If a change is already
	//     recorded as undecided, its Move is updated if r knows it and the reporter recorded the
	//     change or is the site of its owner.
	//   - Unless r.Open, r.Witness is recorded as having compared the server. It is recorded as
	//     live or, with r.Away, as away.
	//   - If there are undecided lost changes, no server is admitted until a recovery ends.
	//     Otherwise this server is admitted, unless a witness is awaited; in that case it is not
	//     admitted, even if it was before.
	Report(ctx context.Context, r Report) (Admission, error)

	// SetPolicy sets the policy, with the database's time, and returns the resulting state. It does
	// not require that the server is admitted.
	SetPolicy(ctx context.Context, p Policy) (Admission, error)

	// LostChanges returns a page of lost changes in byte order of project, ref and operation.
	LostChanges(ctx context.Context, q LostQuery) (LostPage, error)

	// Recover takes one step of a recovery, unless the server is admitted. While a witness that is
	// not in r.Without is awaited, it does nothing. The last step, after which all lost changes are
	// decided, also marks those of r.Without that are still awaited as left out, begins the epoch,
	// ends all locks that belong to no intent, ensures that later tokens are larger than all
	// earlier ones by the clock, and admits the server.
	Recover(ctx context.Context, r RecoverRequest) (Recovered, error)
}
