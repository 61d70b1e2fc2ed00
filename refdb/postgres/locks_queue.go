package postgres

import (
	"fmt"
	"strconv"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// The queue of a lock is the column waiting of its row: the places of the waiters, in the order of
// their tickets. A place is a text whose first fields have a fixed width (see queue.Place). Package
// queue decides in Go for the other databases; here SQL decides, to save a round trip. The rules
// are those of queue.Decide, queue.End, queue.Purge, queue.Pass and queue.Withdraw.

// maxPassed is driver.MaxPassed.
var maxPassed = strconv.Itoa(driver.MaxPassed)

// reservedSuffix ends the owner of a row that is kept for somebody.
var reservedSuffix = driver.ReservedFor("")

// isReserved holds for the rows that are kept for a waiter: their nonce is its place.
var isReserved = fmt.Sprintf(`right(owner, %d) = '%s'`, len(reservedSuffix), reservedSuffix)

// keptForNobody holds for the rows that are kept for whoever asks next, because the first waiter
// polls.
var keptForNobody = isReserved + ` AND nonce IS NULL AND waiting IS NOT NULL`

// These are the fields of a place, and isPlace whether a text is one: other versions of
// this program have entries of other forms.
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

// placesOf is the places in an array without that of the waiter id, or NULL if there are none.
func placesOf(waiting, id string) string {
	return `CASE WHEN ` + waiting + ` IS NOT NULL THEN nullif(ARRAY(
    SELECT place FROM unnest(` + waiting + `) WITH ORDINALITY AS waiting (place, n)
    WHERE ` + isPlace("place") + ` AND ` + idOf("place") + ` <> ` + id + ` ORDER BY n
  ), '{}') END`
}

// withPlace is the places with one more, in their order.
func withPlace(places, place string) string {
	return fmt.Sprintf(`ARRAY(SELECT p FROM unnest(%s || %s) AS p ORDER BY %s LIMIT %d)`, places, place, rank("p"), queue.MaxPlaces)
}

// due holds if one of the places was passed as often as may be.
func due(places string) string {
	return fmt.Sprintf(`EXISTS (SELECT FROM unnest(%s) AS p WHERE %s >= '%02d')`, places, passedOf("p"), driver.MaxPassed)
}

// isNotified holds if the lock is kept for the first of places: it is told when to come, or
// somebody was passed too often.
func isNotified(places string) string {
	return `coalesce(` + due(places) + ` OR ` + channelOf("("+places+")[1]") + ` <> '', false)`
}

// passedOnce is a place after a later waiter got the lock before it.
func passedOnce(p string) string {
	return `overlay(` + p + ` PLACING lpad(least(` + passedOf(p) + `::int + 1, ` + maxPassed + `)::text, 2, '0') FROM 18 FOR 2)`
}

// micros is a time in µs since 1970, as a ticket has it.
func micros(at string) string { return `(extract(epoch FROM ` + at + `) * 1000000)::bigint` }

// handOver consists of common table expressions that end the locks whose rows are in ends. That
// table has the columns tid, waiting and next; next is the place of the next waiter, or empty. Rows
// without waiters are deleted, the others are handed over. Both expressions return project and ref,
// and handed also returns the places to notify: see driver.Notifier.
var handOver = `deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM ends WHERE waiting IS NULL)) RETURNING project, ref
), handed AS (
  UPDATE locks SET owner = ` + reservedOwner("coalesce(place, '')") + `, nonce = place, waiting = rest, heartbeat = ` + reservedHeartbeat("place", "clock_timestamp()") + `, stale_after = NULL
  FROM (
    SELECT tid, place, rest,
           CASE WHEN preferred THEN ARRAY[place] WHEN told THEN place || rest[1:1] ELSE ` + firstToWake("rest") + ` END AS told
    FROM (
      SELECT tid, preferred, told,
             CASE WHEN preferred THEN next WHEN told THEN waiting[1] END AS place,
             CASE WHEN preferred THEN ` + placesOf("waiting", idOf("next")) + `
                  WHEN told AND next <> '' AND ` + idOf("waiting[1]") + ` <> ` + idOf("next") + ` THEN ` + withPlace(placesOf("waiting[2:]", idOf("next")), "next") + `
                  WHEN told THEN nullif(waiting[2:], '{}')
                  ELSE waiting END AS rest
      FROM (
        SELECT tid, waiting, next <> '' AND NOT ` + due("waiting") + ` AS preferred, ` + isNotified("waiting") + ` AS told,
               CASE WHEN next <> '' THEN ` + placeOfNext + ` ELSE '' END AS next
        FROM ends WHERE waiting IS NOT NULL
      ) AS judged
    ) AS placed
  ) AS kept
  WHERE ctid = kept.tid
  RETURNING project, ref, told
)`

// placeOfNext is next with the ticket and the count that it has in the queue, or else
// with a new ticket.
var placeOfNext = `coalesce(
  (SELECT left(p, 19) || substr(next, 20) FROM unnest(waiting) AS p WHERE ` + idOf("p") + ` = ` + idOf("next") + ` LIMIT 1),
  lpad(coalesce(nullif(` + ticketOf("next") + `, 0), ` + micros("clock_timestamp()") + `)::text, 16, '0') || substr(next, 17))`

// firstToWake is an array of the first of places that has a channel, or NULL.
func firstToWake(places string) string {
	return `(SELECT ARRAY[p] FROM unnest(` + places + `) WITH ORDINALITY AS first (p, n) WHERE ` + channelOf("p") + ` <> '' ORDER BY n LIMIT 1)`
}

// reservedHeartbeat is the heartbeat of a row that is reserved for a place from now on, or kept for
// no waiter. It is so far in the past that the row is stale when the place's turn is over. So the
// row needs no stale_after of its own, which would remain when Gerrit's plugin turns the row into a
// lock.
func reservedHeartbeat(place, now string) string {
	return `CASE WHEN ` + place + ` IS NULL THEN 'epoch' ELSE ` + now + ` - (` + defaultStaleAfter + ` - ` + turnOf(place) + `) * interval '1 microsecond' END`
}

// reservedOwner is the owner of a row that is kept for a place.
func reservedOwner(place string) string { return ownerOf(place) + ` || '` + reservedSuffix + `'` }

// placeText is the place of a waiter of owner, as the statements take it; "" for the zero Waiter.
func placeText(w driver.Waiter, owner string) string {
	if w.ID == "" {
		return ""
	}
	return queue.PlaceOf(w, owner).String()
}
