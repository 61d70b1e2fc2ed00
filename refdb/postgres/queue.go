package postgres

import (
	"fmt"
	"strconv"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// Who waits for a lock stands in its row's queue, the column waiting, in the order of their
// tickets: places as texts (see queue.Place), whose first fields have a fixed width. What package
// queue does in Go, for the other databases, is done in SQL here, so that it takes no round trip more: see
// queue.Decide, queue.End and queue.Withdraw for the rules.

// maxPassed is refdb.MaxPassed.
var maxPassed = strconv.Itoa(refdb.MaxPassed)

// maxPlaces is the longest queue. Whoever does not fit in, as the last, polls.
const maxPlaces = 100

// waitsSuffix ends the owner of a row that is kept for somebody.
var waitsSuffix = refdb.ReservedFor("")

// isReserved tells the rows that are kept for somebody who waits: then the nonce is the place.
var isReserved = fmt.Sprintf(`right(owner, %d) = '%s'`, len(waitsSuffix), waitsSuffix)

// The fields of a place, and whether a text is one: other versions of this program have
// entries of other forms.
func isPlace(p string) string   { return p + ` ~ '^[0-9]{16}[.][0-9]{2}[.][0-9]{5}[.]'` }
func ticketOf(p string) string  { return `left(` + p + `, 16)::bigint` }
func passedOf(p string) string  { return `substr(` + p + `, 18, 2)` }
func turnOf(p string) string    { return `substr(` + p + `, 21, 5)::bigint * 1000` }
func idOf(p string) string      { return `split_part(` + p + `, '.', 4)` }
func channelOf(p string) string { return `split_part(` + p + `, '.', 5)` }
func ownerOf(p string) string {
	return `substr(` + p + `, 29 + length(` + idOf(p) + `) + length(` + channelOf(p) + `))`
}

// rank is what places are ordered by.
func rank(p string) string { return ticketOf(p) + `, ` + idOf(p) + ` COLLATE "C"` }

// placesOf are the places in an array that are not those of the waiter id, or NULL if there are none.
func placesOf(waiting, id string) string {
	return `CASE WHEN ` + waiting + ` IS NOT NULL THEN nullif(ARRAY(
    SELECT place FROM unnest(` + waiting + `) WITH ORDINALITY AS waiting (place, n)
    WHERE ` + isPlace("place") + ` AND ` + idOf("place") + ` <> ` + id + ` ORDER BY n
  ), '{}') END`
}

// withPlace are the places with one more in its place.
func withPlace(places, place string) string {
	return fmt.Sprintf(`ARRAY(SELECT p FROM unnest(%s || %s) AS p ORDER BY %s LIMIT %d)`, places, place, rank("p"), maxPlaces)
}

// due holds for places of which one was passed as often as may be.
func due(places string) string {
	return fmt.Sprintf(`EXISTS (SELECT FROM unnest(%s) AS p WHERE %s >= '%02d')`, places, passedOf("p"), refdb.MaxPassed)
}

// told holds if the first of places is to be waited for, because it is told when to come, or somebody was
// passed too often.
func told(places string) string {
	return `coalesce(` + due(places) + ` OR ` + channelOf("("+places+")[1]") + ` <> '', false)`
}

// passedOnce is a place after somebody got the lock past it.
func passedOnce(p string) string {
	return `overlay(` + p + ` PLACING lpad(least(` + passedOf(p) + `::int + 1, ` + maxPassed + `)::text, 2, '0') FROM 18 FOR 2)`
}

// micros is a time in µs since 1970, as a ticket has it.
func micros(at string) string { return `(extract(epoch FROM ` + at + `) * 1000000)::bigint` }

// handOn is common table expressions that end the locks whose rows are in ends, with the
// columns tid, waiting and next (the place of one who is next, or ”). A row where nobody waits
// is deleted; the others are handed on. Both have project and ref, and handed the places to be
// told: see refdb.Notifier.
var handOn = `deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM ends WHERE waiting IS NULL)) RETURNING project, ref
), handed AS (
  UPDATE locks SET owner = ` + keptBy("coalesce(place, '')") + `, nonce = place, waiting = rest, heartbeat = ` + keptSince("place", "clock_timestamp()") + `, stale_after = NULL
  FROM (
    SELECT tid,
           CASE WHEN preferred THEN ` + placeOfNext + ` WHEN told THEN waiting[1] END AS place,
           CASE WHEN preferred THEN ` + placesOf("waiting", idOf("next")) + ` WHEN told THEN nullif(waiting[2:], '{}') ELSE waiting END AS rest,
           CASE WHEN preferred THEN NULL WHEN told THEN waiting[1:2] ELSE ` + firstToWake("waiting") + ` END AS told
    FROM (
      SELECT ends.*, next <> '' AND NOT ` + due("waiting") + ` AS preferred, ` + told("waiting") + ` AS told
      FROM ends WHERE waiting IS NOT NULL
    ) AS judged
  ) AS kept
  WHERE ctid = kept.tid
  RETURNING project, ref, told
)`

// placeOfNext is next, with the ticket and the count that it has if it waits already, and else
// with a new ticket.
var placeOfNext = `coalesce(
  (SELECT left(p, 19) || substr(next, 20) FROM unnest(waiting) AS p WHERE ` + idOf("p") + ` = ` + idOf("next") + ` LIMIT 1),
  lpad(coalesce(nullif(` + ticketOf("next") + `, 0), ` + micros("clock_timestamp()") + `)::text, 16, '0') || substr(next, 17))`

// firstToWake is an array with the first of places that has a channel, or NULL.
func firstToWake(places string) string {
	return `(SELECT ARRAY[p] FROM unnest(` + places + `) WITH ORDINALITY AS first (p, n) WHERE ` + channelOf("p") + ` <> '' ORDER BY n LIMIT 1)`
}

// keptSince is the heartbeat of a row that is kept for a place from now on, or for nobody: the usual age less
// the place's turn ago. So the row says nothing unusual of a lock that Gerrit's plugin makes of it.
func keptSince(place, now string) string {
	return `CASE WHEN ` + place + ` IS NULL THEN 'epoch' ELSE ` + now + ` - (30000000 - ` + turnOf(place) + `) * interval '1 microsecond' END`
}

// keptBy is the owner of a row that is kept for a place.
func keptBy(place string) string { return ownerOf(place) + ` || '` + waitsSuffix + `'` }

// nextText is the place of one who is next, as the statements take it; "" for the zero Waiter. Its own
// process tells it.
func nextText(w refdb.Waiter, owner string) string {
	w.Channel = ""
	return placeText(w, owner)
}

// placeText is the place of a waiter of owner, as the statements take it; "" for the zero Waiter.
func placeText(w refdb.Waiter, owner string) string {
	if w.ID == "" {
		return ""
	}
	return queue.PlaceOf(w, owner).String()
}
