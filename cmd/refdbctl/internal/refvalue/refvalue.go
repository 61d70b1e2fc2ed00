// Package refvalue parses and formats values of refs.
package refvalue

import (
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// none stands for an absent value on the command line and in messages.
const none = "none"

// Parse parses a value from the command line: a full object ID, in upper or lower case, or "ref:
// NAME". With any it accepts other strings, too.
func Parse(s string, any bool) (refdb.Value, error) {
	v := refdb.Value(s)
	if lower := refdb.Value(strings.ToLower(s)); lower.IsObjectID() {
		return lower, nil
	}
	_, symbolic := v.Target()
	switch {
	case s == "":
		return "", exit.Usage("an empty value can't be stored")
	case !any && !symbolic:
		return "", exit.Usage(fmt.Sprintf("value %q is neither a full object ID (40 or 64 hex digits; abbreviations can't be stored) "+
			`nor "ref: NAME": --string accepts any text`, s))
	}
	return v, driver.CheckValue(v)
}

// ParseOld parses the expected value of a ref; "none" means no value.
func ParseOld(s string, any bool) (refdb.Value, error) {
	if s == none {
		return refdb.Unknown, nil
	}
	return Parse(s, any)
}

// Describe returns a value as messages show it.
func Describe(v refdb.Value) string {
	if v.IsAbsent() {
		return none
	}
	return string(v)
}

// Abbreviated returns a value with its object ID cut to 7 digits.
func Abbreviated(v refdb.Value) string {
	if v.IsObjectID() && !v.IsAbsent() {
		return string(v[:7])
	}
	return Describe(v)
}

// State returns a word for whether a ref with this value exists.
func State(v refdb.Value) string {
	switch {
	case v == refdb.Unknown:
		return "unknown"
	case v.IsDeleted():
		return "deleted"
	default:
		return "present"
	}
}
