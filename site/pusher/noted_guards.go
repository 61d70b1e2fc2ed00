package pusher

import "github.com/globalrefdb/globalrefdb/site/internal/durable"

// A daemon notes, in its state directory, which guards have transactions. The next daemon can't know what these guards
// were told until they have begun sessions with it, because not every answer left an intent.

func guardsFile(state string) durable.State { return durable.In(state, "guards") }

// NoteGuards writes those guards to a daemon's state directory, durably.
func NoteGuards(state string, all []Guard) error {
	names := make([]string, len(all))
	for i, g := range all {
		names[i] = g.String()
	}
	return guardsFile(state).Save(names)
}

// NotedGuards returns the guards that [NoteGuards] wrote last.
func NotedGuards(state string) (all []Guard, err error) {
	var names []string
	if _, err := guardsFile(state).Load(&names); err != nil {
		return nil, err
	}
	for _, name := range names {
		if g, ok := ParseGuard(name); ok {
			all = append(all, g)
		}
	}
	return all, nil
}
