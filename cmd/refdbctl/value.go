package main

import (
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// none is what an absent value is called on the command line and in texts.
const none = "none"

// parseValue reads a value from the command line: a full object ID, in either
// case, or "ref: NAME"; with any also another string.
func parseValue(s string, any bool) (refdb.Value, error) {
	v := refdb.Value(s)
	if lower := refdb.Value(strings.ToLower(s)); lower.IsObjectID() {
		return lower, nil
	}
	_, symbolic := v.Target()
	switch {
	case s == "":
		return "", usage("an empty value can't be stored")
	case !any && !symbolic:
		return "", usage(fmt.Sprintf("value %q is neither a full object ID (40 or 64 hex digits; abbreviations can't be stored) "+
			`nor "ref: NAME": --string takes it as it is`, s))
	}
	return v, refdb.CheckValue(v)
}

// parseOld reads what a ref is expected to hold.
func parseOld(s string, any bool) (refdb.Value, error) {
	if s == none {
		return refdb.Unknown, nil
	}
	return parseValue(s, any)
}

// tombstone is the zero ID that stands for a deleted ref which held old.
func tombstone(old refdb.Value) refdb.Value {
	if len(old) == len(refdb.Deleted256) {
		return refdb.Deleted256
	}
	return refdb.Deleted
}

// describe is a value as texts show it.
func describe(v refdb.Value) string {
	if v.IsAbsent() {
		return none
	}
	return string(v)
}

// state says in one word whether a ref is there.
func state(v refdb.Value) string {
	switch {
	case v == refdb.Unknown:
		return "unknown"
	case v.IsDeleted():
		return "deleted"
	default:
		return "present"
	}
}
