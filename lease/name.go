package lease

import (
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// MaxNameBytes is the maximum length of a lease's name. The escaped name may be three times as
	// long; together with the project it must not be longer than [driver.MaxNameBytes].
	MaxNameBytes = 500

	refPrefix = "refs/leases/"
	entryLock = "turn" // the last part of the ref under whose lock tickets are taken
)

// prefixOf returns the prefix of a lease's refs.
func prefixOf(name string) string { return RefOf(name) + "/" }

// ParseRef returns the name and the mode of the lease to which a ref belongs as the row of a holder
// or waiter.
func ParseRef(ref string) (name string, mode Mode, ok bool) {
	rest, ok := strings.CutPrefix(ref, refPrefix)
	escaped, row, found := strings.Cut(rest, "/")
	name, valid := unescape(escaped)
	if !ok || !found || !valid || escape(name) != escaped {
		return "", 0, false
	}
	for _, mode := range []Mode{Shared, Exclusive} {
		if random, ok := strings.CutPrefix(row, mode.String()+"-"); ok && random != "" && !strings.Contains(random, "/") {
			return name, mode, true
		}
	}
	return "", 0, false
}

// RefOf returns the prefix of a lease's refs, without the final slash. No lock or row is on this
// ref itself: it represents the lease where a ref is needed, such as in access rules.
func RefOf(name string) string { return refPrefix + escape(name) }

// check returns an error wrapping refdb.ErrInvalid if the project, name or mode is not valid for a
// lease.
func check(project, name string, mode Mode) error {
	switch {
	case mode != Shared && mode != Exclusive:
		return fmt.Errorf("%w mode %s: give Shared or Exclusive", refdb.ErrInvalid, mode)
	case name == "" || len(name) > MaxNameBytes:
		return fmt.Errorf("%w name of a lease, %d bytes long: give 1 to %d", refdb.ErrInvalid, len(name), MaxNameBytes)
	}
	return driver.CheckProject(project)
}

const hexDigits = "0123456789ABCDEF"

// escape converts any string to one component of a ref: all bytes except ASCII letters, digits, "-"
// and "_" are written as "%" and two digits.
func escape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// unescape undoes escape.
func unescape(escaped string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		if escaped[i] != '%' {
			b.WriteByte(escaped[i])
			continue
		}
		if i+2 >= len(escaped) {
			return "", false
		}
		high, low := strings.IndexByte(hexDigits, escaped[i+1]), strings.IndexByte(hexDigits, escaped[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b.WriteByte(byte(high<<4 | low))
		i += 2
	}
	return b.String(), b.Len() > 0
}
