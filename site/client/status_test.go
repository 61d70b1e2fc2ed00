package client_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/site/client"
)

func TestWhatIsUnreadForFiveMinutesIsForAnOperator(t *testing.T) {
	t.Parallel()
	well := client.Status{Presence: true, Database: true}
	for name, c := range map[string]struct {
		reader client.Reader
		err    string
		ok     bool
	}{
		"a reader that has read all":      {client.Reader{Connected: true}, "", true},
		"one that is behind for a moment": {client.Reader{Unread: 10, Oldest: 290}, "", true},
		"one that is behind for longer":   {client.Reader{Unread: 10, Oldest: 310}, "", false},
		"one that compares everything":    {client.Reader{Comparing: true}, "", true},
		"a list that can't be written":    {client.Reader{}, "full", false},
	} {
		s := well
		s.Readers, s.MovesError = []client.Reader{c.reader}, c.err
		if s.OK() != c.ok {
			t.Errorf("%s: it is all right: %v", name, s.OK())
		}
	}
}
