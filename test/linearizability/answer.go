package linearizability

import (
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// answer is what err says.
//
// Only ErrOutcomeUnknown leaves open whether a request was carried out. With every
// other error the check insists that it was not.
func answer(err error) Output {
	if err == nil {
		return Output{Result: Done}
	}
	out := Output{Result: Nothing, Error: err.Error()}
	var (
		lost     *refdb.LostError
		locked   *refdb.LockedError
		mismatch *refdb.MismatchError
	)
	switch {
	case errors.Is(err, refdb.ErrOutcomeUnknown):
		out.Result = Unknown
	case errors.As(err, &lost):
		out.Result, out.Lost = Lost, lost.Refs
	case errors.As(err, &locked):
		out.Result, out.Holders = Locked, holders(locked.Holders)
	case errors.As(err, &mismatch):
		out.Result, out.Mismatches = Mismatch, mismatch.Mismatches
	}
	return out
}

func holders(infos []refdb.LockInfo) []Holder {
	all := make([]Holder, len(infos))
	for i, l := range infos {
		all[i] = Holder{Ref: l.Ref, Owner: l.Owner, Token: l.Token, Age: l.Age, StaleAfter: l.StaleAfter}
	}
	return all
}

func values(rows []refdb.Ref) map[string]refdb.Value {
	all := make(map[string]refdb.Value, len(rows))
	for _, r := range rows {
		all[r.Name] = r.Value
	}
	return all
}
