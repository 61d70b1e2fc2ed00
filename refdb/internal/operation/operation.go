// Package operation encodes the operation that wrote a row of a ref as a string: its ID and, each
// after a tab, the process that made it and its requester. Programs from before the history write
// only the ID.
package operation

import (
	"strings"
	"unicode"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Text returns the encoded form of an operation.
func Text(o driver.Origin) string {
	by := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, o.By)
	return o.ID + "\t" + o.Owner + "\t" + by
}

// OfIntent returns the string by which the intents of a preparation refer to it. It is stored in
// the column that holds the nonce in the row of a revocation, and never equals a nonce, because a
// nonce contains no tab.
func OfIntent(r driver.PrepareRequest) string {
	return Text(driver.Origin{ID: r.Nonce, Owner: r.Owner, By: r.By})
}

// ID returns the ID of an operation.
func ID(text string) string {
	id, _, _ := strings.Cut(text, "\t")
	return id
}

// Parse is the inverse of Text. Only an owner may contain tabs.
func Parse(text string) driver.Origin {
	id, rest, _ := strings.Cut(text, "\t")
	i := strings.LastIndexByte(rest, '\t')
	if i < 0 {
		return driver.Origin{ID: id, Owner: rest}
	}
	return driver.Origin{ID: id, Owner: rest[:i], By: rest[i+1:]}
}
