package linearizability

import (
	"math"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// An Op is one call to a [Client] and its result.
type Op struct {
	Owner  string // whose call it was
	ID     int    // which of its calls
	Input  Input
	Output Output
	Call   int64 // when, in nanoseconds by a clock that all processes of the machine share
	Return int64 // when it returned; Never if that was not recorded
}

// Never is the return time of a call whose process died before it recorded one.
const Never = math.MaxInt64

// A Kind is the method that was called.
type Kind string

const (
	Get     Kind = "get"
	Update  Kind = "update"
	Acquire Kind = "acquire"
	Release Kind = "release"
	Beat    Kind = "beat"       // a request of the database for all locks of a DB
	Step    Kind = "clock step" // of the database's clock, told by [Recorder.ClockStepped]
)

// Input is what was asked.
type Input struct {
	Kind    Kind           `json:"kind"`
	Project string         `json:"project,omitempty"`
	Refs    []string       `json:"refs,omitempty"` // read, locked or released; of an update those of its fence
	Updates []refdb.Update `json:"updates,omitempty"`
	Owner   string         `json:"owner,omitempty"` // of the fence
	Token   refdb.Token    `json:"token,omitempty"` // of the fence, or of the lock to release

	Release  bool `json:"release,omitempty"` // with the update
	Adopt    bool `json:"adopt,omitempty"`
	Advisory bool `json:"advisory,omitempty"`

	StaleAfter time.Duration `json:"stale_after,omitempty"` // of the locks asked for
}

// A Result is an answer in a word.
type Result string

const (
	Done     Result = "done"
	Locked   Result = "locked"
	Mismatch Result = "mismatch"
	Lost     Result = "lost"
	Nothing  Result = "nothing" // certainly not carried out, and no more is said
	Unknown  Result = "unknown" // it may have been carried out, or still be
)

// Output is the answer.
type Output struct {
	Result     Result                 `json:"result"`
	Values     map[string]refdb.Value `json:"values,omitempty"` // of the refs that have a row
	Mismatches []refdb.Mismatch       `json:"mismatches,omitempty"`
	Token      refdb.Token            `json:"token,omitempty"`     // acquired
	Reclaimed  []Holder               `json:"reclaimed,omitempty"` // on the way
	Holders    []Holder               `json:"holders,omitempty"`   // the locks in the way
	Lost       []string               `json:"lost,omitempty"`      // refs
	Deleted    []string               `json:"deleted,omitempty"`   // refs whose locks a release deleted
	Beats      []Row                  `json:"beats,omitempty"`
	// Unresolved says that the reply to one of the call's requests was lost, or that a grant
	// was given back. So the call may have had effects that the answer does not report.
	Unresolved bool   `json:"unresolved,omitempty"`
	Error      string `json:"error,omitempty"` // the error's text, for people
}

// A Holder is a lock that an answer names.
type Holder struct {
	Ref        string        `json:"ref"`
	Owner      string        `json:"owner"`
	Token      refdb.Token   `json:"token"`
	Age        time.Duration `json:"age"`
	StaleAfter time.Duration `json:"stale_after"`
}

func (h Holder) stale() bool { return h.Age > h.StaleAfter }

// reserved reports whether the row is kept for a waiter.
func (h Holder) reserved() bool { return refdb.LockInfo{Owner: h.Owner}.Reserved() }

// A Row is the result of the beat of one row.
type Row struct {
	Project string            `json:"project"`
	Ref     string            `json:"ref"`
	Token   refdb.Token       `json:"token"`
	Result  driver.BeatResult `json:"result"`
}
