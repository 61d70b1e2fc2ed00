package site

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// An inheritance is what daemons of this state directory left to the next.
//
// A daemon that ends may leave requests on their way, that the database
// carries out at any later time. No push was let through on them, so they have to be dropped; but
// after the ref was moved there and back by others, the repository seems to say that they
// were carried out. What tells them from intents that a push was let through on is
// that those stood when the next daemon looked for the first time, before it
// let anything through itself.
type inheritance struct {
	// Owner is the daemon that wrote this. All of its intents may have been answered.
	Owner string `json:"owner"`
	// Intents are those that stood when it looked for the first time.
	Intents []intentKey `json:"intents"`
}

// readInheritance returns nil if there is none: then this is the first start
// with this state directory.
func readInheritance(state string) (*inheritance, error) {
	b, err := os.ReadFile(filepath.Join(state, "inherited"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var h inheritance
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the daemon's state: %w", err)
	}
	return &h, nil
}

func (h *inheritance) write(state string) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(state, "inherited"), b)
}

// inherit tells the intents that a push may have been let through on from those
// that came late, at the first look and at all later ones.
func (d *Daemon) inherit(state string, pending []refdb.Intent) (late, others []refdb.Intent, err error) {
	mine := d.inherited.Load()
	first := mine == nil
	var answered func(refdb.Intent) bool
	if first {
		h, err := readInheritance(state)
		if err != nil {
			return nil, nil, err
		}
		stood := h.stood()
		answered = func(i refdb.Intent) bool { return h == nil || i.Owner == h.Owner || stood[keyOf(i)] }
	} else {
		answered = func(i refdb.Intent) bool { return i.Owner == d.db.Owner() || (*mine)[keyOf(i)] }
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
	h := &inheritance{Owner: d.db.Owner(), Intents: []intentKey{}}
	for _, i := range others {
		h.Intents = append(h.Intents, keyOf(i))
	}
	if err := h.write(state); err != nil {
		return nil, nil, err
	}
	stood := h.stood()
	d.inherited.Store(&stood)
	return late, others, nil
}

func (h *inheritance) stood() map[intentKey]bool {
	stood := map[intentKey]bool{}
	if h != nil {
		for _, i := range h.Intents {
			stood[i] = true
		}
	}
	return stood
}
