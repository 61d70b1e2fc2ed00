package moving

import (
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// An inheritance is what the daemons of a state directory leave to the next one.
//
// A daemon that ends may leave requests in flight, which the database carries out later. No push
// was let through because of them, so that their intents must be dropped. The repository can't tell
// these intents from others: if another process has moved the ref and moved it back, the repository
// seems to show that the move was carried out. But an intent on which a push was let through is in
// the database when the next daemon first looks, before that daemon lets any push through.
type inheritance struct {
	// Owner is the daemon that wrote this. Pushes may rely on all of its intents.
	Owner string `json:"owner"`
	// Intents are those that the database had when the daemon first looked.
	Intents []Key `json:"intents"`
}

func inheritedFile(state string) durable.State { return durable.In(state, "inherited") }

// readInheritance returns nil if there is none: this is the first start with this state directory.
func readInheritance(state string) (*inheritance, error) {
	h := new(inheritance)
	found, err := inheritedFile(state).Load(h)
	if err != nil || !found {
		return nil, err
	}
	return h, nil
}

// Inherited are the intents of earlier daemons that a push may rely on.
type Inherited struct {
	intents map[Key]bool // nil until they are known
}

// Separate separates the intents that came late from those on which a push may have been let
// through. Owner is this daemon, state its directory. After the first call that succeeds, the
// daemon knows what its predecessors left.
func (in *Inherited) Separate(state, owner string, pending []driver.Intent) (late, others []driver.Intent, err error) {
	first := in.intents == nil
	var answered func(driver.Intent) bool
	if first {
		h, err := readInheritance(state)
		if err != nil {
			return nil, nil, err
		}
		stood := h.stood()
		answered = func(i driver.Intent) bool { return h == nil || i.Owner == h.Owner || stood[KeyOf(i)] }
	} else {
		answered = func(i driver.Intent) bool { return i.Owner == owner || in.intents[KeyOf(i)] }
	}
	for _, i := range pending {
		if answered(i) {
			others = append(others, i)
		} else {
			late = append(late, i)
		}
	}
	if !first {
		return late, others, nil
	}
	h := &inheritance{Owner: owner, Intents: []Key{}}
	for _, i := range others {
		h.Intents = append(h.Intents, KeyOf(i))
	}
	if err := inheritedFile(state).Save(h); err != nil {
		return nil, nil, err
	}
	in.intents = h.stood()
	return late, others, nil
}

func (h *inheritance) stood() map[Key]bool {
	stood := map[Key]bool{}
	if h != nil {
		for _, i := range h.Intents {
			stood[i] = true
		}
	}
	return stood
}
