// Package timespec parses how a command line names a time or a past state: a time, an age, a
// position in the history, or REF@{N}.
package timespec

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// MaxDays is close to the longest time.Duration, 292 years.
const MaxDays = 100_000

// Age parses a positive duration, which may be given in days.
func Age(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		n = max(min(n, MaxDays), -MaxDays)
		d = time.Duration(n) * 24 * time.Hour
	}
	switch {
	case err != nil:
		return 0, errors.New("give an age such as 90s, 10m, 36h or 30d, not a point in time")
	case d <= 0:
		return 0, errors.New("an age must be positive, such as 10m: it is a duration, not a point in time")
	}
	return d, nil
}

// A Time is a time, given directly or as an age.
type Time struct {
	at  time.Time
	ago time.Duration
}

// Resolve returns the time. An age is subtracted from now, the database's time.
func (t Time) Resolve(now time.Time) time.Time {
	if t.ago > 0 {
		return now.Add(-t.ago)
	}
	return t.at
}

// layouts are the accepted layouts of times, including that of tables.
var layouts = [...]string{time.RFC3339, "2006-01-02 15:04:05Z07:00", time.DateOnly}

// Forms describes what ParseTime accepts.
const Forms = "a time, such as 2026-01-31 or 2026-01-31T15:04:05Z, or an age, such as 12h, 7d or \"2h ago\""

// ParseTime parses a time, or an age with or without "ago". A date means its start, in UTC.
func ParseTime(s string) (Time, error) {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			return Time{at: t}, nil
		}
	}
	ago, err := Age(strings.TrimSuffix(s, " ago"))
	if err != nil {
		return Time{}, errors.New("give " + Forms)
	}
	return Time{ago: ago}, nil
}

// ParsePosition parses a position, which is a number. It reports false for anything else.
func ParsePosition(s string) (_ refdb.Position, ok bool, _ error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, true, fmt.Errorf("a position is at most %d", int64(math.MaxInt64))
	}
	return refdb.Position(n), true, nil
}

// ParseBack parses REF or REF@{N}, the value of a ref before its last N changes. N is 1 by default.
func ParseBack(s string) (ref string, n int, err error) {
	ref, number, ok := strings.Cut(s, "@{")
	if !ok {
		return ref, 1, nil
	}
	number, closed := strings.CutSuffix(number, "}")
	n, err = strconv.Atoi(number)
	switch {
	case !closed || err != nil || n < 0 || strings.Trim(number, "0123456789") != "":
		return "", 0, errors.New("give REF@{N}, such as refs/heads/main@{1} for the value before the last change; for a time use --at")
	case n == 0:
		return "", 0, errors.New("REF@{0} is the current value; REF@{1} is the value before the last change")
	}
	return ref, n, nil
}
