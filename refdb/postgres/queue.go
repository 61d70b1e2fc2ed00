package postgres

import (
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Somebody who was refused a lock stands in its row's queue, the column waiting:
// first come first. Whoever deletes the row wakes the first and sends it the
// queue; the rest of that goes into the row of the lock that it then takes. So
// the end of a lock wakes one waiter, not all, and nobody is forgotten. All of it is a
// hint: where it gets lost, waiters poll.

// maxWaiting is the longest queue. Whoever does not fit in polls.
const maxWaiting = 100

// mergedQueue joins the entries of queue, a list with commas between, and of waiting, an
// array, in their order and each once. The waiter $7 comes last or, if the lock is
// free, is taken out.
const mergedQueue = `nullif(ARRAY(
  SELECT entry FROM unnest(string_to_array(queue, ',') || waiting || $7::text) WITH ORDINALITY AS entries (entry, n)
  WHERE entry <> CASE WHEN free THEN $7 ELSE '' END GROUP BY entry ORDER BY min(n) LIMIT 100
), '{}')`

// entryOf is how w stands in a queue; "" for the zero Waiter.
func entryOf(w refdb.Waiter) string {
	if w == (refdb.Waiter{}) {
		return ""
	}
	return w.Channel + "." + w.Client
}

// parseEntry is the reverse. Other versions of this program have entries of other forms.
func parseEntry(entry string) (w refdb.Waiter, ok bool) {
	w.Channel, w.Client, ok = strings.Cut(entry, ".")
	return w, ok && isWaiterName(w.Channel) && isWaiterName(w.Client)
}

func isWaiterName(s string) bool {
	for _, c := range []byte(s) {
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z') {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 32
}

// entriesOf returns those of a queue, with commas between.
func entriesOf(q refdb.Queue) string {
	entries := make([]string, len(q))
	for i, w := range q {
		entries[i] = entryOf(w)
	}
	return strings.Join(entries, ",")
}

// queueOf is the queue of a lock whose row had these entries, after its release with h.
func queueOf(entries []string, h refdb.Handoff) refdb.Queue {
	var queue refdb.Queue
	for _, entry := range entries {
		if w, ok := parseEntry(entry); ok && w != h.Next && w != h.Last {
			queue = append(queue, w)
		}
	}
	if h.Last != (refdb.Waiter{}) {
		queue = append(queue, h.Last)
	}
	return queue[:min(len(queue), maxWaiting)]
}
