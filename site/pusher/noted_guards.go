package pusher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/internal/durable"
)

// A daemon notes, in its state directory, which guards have transactions. The next one does not know what they were told before they have
// begun sessions with it: not all of that has intents.

func guardsFile(state string) string { return filepath.Join(state, "guards") }

// NoteGuards writes those guards to a daemon's state directory, durably.
func NoteGuards(state string, all []Guard) error {
	names := make([]string, len(all))
	for i, g := range all {
		names[i] = g.String()
	}
	b, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return durable.WriteState(guardsFile(state), b)
}

// NotedGuards returns the guards that [NoteGuards] wrote last.
func NotedGuards(state string) (all []Guard, err error) {
	b, err := os.ReadFile(guardsFile(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	if err == nil {
		err = json.Unmarshal(b, &names)
	}
	if err != nil {
		return nil, fmt.Errorf("reading which guards the daemon has met: %w", err)
	}
	for _, name := range names {
		if g, ok := ParseGuard(name); ok {
			all = append(all, g)
		}
	}
	return all, nil
}
