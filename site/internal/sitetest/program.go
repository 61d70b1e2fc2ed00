package sitetest

import "strings"

// NoNamespace reports whether the output of a command that begins with unshare and mount says that these are not allowed here.
func NoNamespace(out string) bool {
	return strings.Contains(out, "Operation not permitted") || strings.Contains(out, "ermission denied") || strings.Contains(out, "must be superuser")
}
