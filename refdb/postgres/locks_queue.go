package postgres

import (
	"fmt"
	"strconv"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// The queue of a lock is the column waiting of its row: the waiters' places, in the order of their
// tickets. A place is a string whose first fields have a fixed width (see queue.Place). For the
// other databases, package queue decides in Go; here SQL decides, to save a round trip. The rules
// are those of queue.Decide, queue.End, queue.Purge, queue.Pass and queue.Withdraw.

// maxPassed is driver.MaxPassed as an SQL literal.
var maxPassed = strconv.Itoa(driver.MaxPassed)

// reservedSuffix is the suffix of a reservation's owner.
var reservedSuffix = driver.ReservedFor("")

// isReserved is true for reservations. The nonce of a reservation for a waiter is the waiter's
// place.
var isReserved = fmt.Sprintf(`right(owner, %d) = '%s'`, len(reservedSuffix), reservedSuffix)

// keptForNobody is true for reservations that any request may take, because the first waiter polls.
var keptForNobody = isReserved + ` AND nonce IS NULL AND waiting IS NOT NULL`

// isPlace reports whether a string is a place, because other versions of this program store places
// in other forms. The functions after it return the fields of a place.
func isPlace(p string) string   { return p + ` ~ '^[0-9]{16}[.][0-9]{2}[.][0-9]{5}[.]'` }
func ticketOf(p string) string  { return `left(` + p + `, 16)::bigint` }
func passedOf(p string) string  { return `substr(` + p + `, 18, 2)` }
func turnOf(p string) string    { return `substr(` + p + `, 21, 5)::bigint * 1000` }
func idOf(p string) string      { return `split_part(` + p + `, '.', 4)` }
func channelOf(p string) string { return `split_part(` + p + `, '.', 5)` }
func ownerOf(p string) string {
	return `substr(` + p + `, 29 + length(` + idOf(p) + `) + length(` + channelOf(p) + `))`
}

// rank is the sort key of a place.
func rank(p string) string { return ticketOf(p) + `, ` + idOf(p) + ` COLLATE "C"` }

// placesOf returns an array of places without the place of the waiter id, or NULL if none is left.
func placesOf(waiting, id string) string {
	return `CASE WHEN ` + waiting + ` IS NOT NULL THEN nullif(ARRAY(
    SELECT place FROM unnest(` + waiting + `) WITH ORDINALITY AS waiting (place, n)
    WHERE ` + isPlace("place") + ` AND ` + idOf("place") + ` <> ` + id + ` ORDER BY n
  ), '{}') END`
}

// withPlace returns the places with one more, in their order.
func withPlace(places, place string) string {
	return fmt.Sprintf(`ARRAY(SELECT p FROM unnest(%s || %s) AS p ORDER BY %s LIMIT %d)`, places, place, rank("p"), queue.MaxPlaces)
}

// due is true if one of the places has been passed as often as is allowed.
func due(places string) string {
	return fmt.Sprintf(`EXISTS (SELECT FROM unnest(%s) AS p WHERE %s >= '%02d')`, places, passedOf("p"), driver.MaxPassed)
}

// isNotified is true if the lock is reserved for the first of places: its waiter has a channel, or
// a waiter has been passed too often.
func isNotified(places string) string {
	return `coalesce(` + due(places) + ` OR ` + channelOf("("+places+")[1]") + ` <> '', false)`
}

// passedOnce returns a place after a later waiter took the lock before its waiter.
func passedOnce(p string) string {
	return `overlay(` + p + ` PLACING lpad(least(` + passedOf(p) + `::int + 1, ` + maxPassed + `)::text, 2, '0') FROM 18 FOR 2)`
}

// micros returns a time in µs since 1970, the unit of a ticket.
func micros(at string) string { return `(extract(epoch FROM ` + at + `) * 1000000)::bigint` }

// handOver consists of common table expressions that end the locks whose rows are listed in ends.
// The table ends has the columns tid, waiting and next; next is the place of the next waiter, or
// empty. Rows without waiters are deleted; the others become reservations. Both expressions return
// project and ref, and handed also returns the places to notify: see driver.Notifier.
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

// placeOfNext is next with the ticket and the count from its place in the queue. If next is not in
// the queue and has no ticket, it gets a new ticket.
var placeOfNext = `coalesce(
  (SELECT left(p, 19) || substr(next, 20) FROM unnest(waiting) AS p WHERE ` + idOf("p") + ` = ` + idOf("next") + ` LIMIT 1),
  lpad(coalesce(nullif(` + ticketOf("next") + `, 0), ` + micros("clock_timestamp()") + `)::text, 16, '0') || substr(next, 17))`

// firstToWake returns an array with the first of places whose process can be woken, or NULL.
func firstToWake(places string) string {
	return `(SELECT ARRAY[p] FROM unnest(` + places + `) WITH ORDINALITY AS first (p, n) WHERE ` + channelOf("p") + ` NOT IN ('', '` + queue.Unheard + `') ORDER BY n LIMIT 1)`
}

// reservedHeartbeat returns the heartbeat of a row that becomes a reservation for place, or for
// nobody if place is NULL. The heartbeat lies so far in the past that the row is stale when the
// turn of place is over. So the row needs no stale_after of its own, which would remain when
// Gerrit's plugin turns the row into a lock.
func reservedHeartbeat(place, now string) string {
	return `CASE WHEN ` + place + ` IS NULL THEN 'epoch' ELSE ` + now + ` - (` + defaultStaleAfter + ` - ` + turnOf(place) + `) * interval '1 microsecond' END`
}

// reservedOwner returns the owner of a reservation for the place p.
func reservedOwner(place string) string { return ownerOf(place) + ` || '` + reservedSuffix + `'` }

// placeText returns the place of w, a waiter of owner, for the statements; "" for the zero Waiter.
func placeText(w driver.Waiter, owner string) string {
	if w.ID == "" {
		return ""
	}
	return queue.PlaceOf(w, owner).String()
}
