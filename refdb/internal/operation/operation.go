// Package operation is the text by which a row of a ref names the operation that wrote it: its
// ID and, after a tab each, the process that made it and who asked for it. Programs from before
// the history write the ID alone.
package operation

import (
	"strings"
	"unicode"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Text returns the text of an operation.
func Text(o driver.Origin) string {
	by := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, o.By)
	return o.ID + "\t" + o.Owner + "\t" + by
}

// OfIntent returns the text by which the intents of a preparation name it. It stands where the row
// of a revocation has its nonce, and is never equal to one: a nonce has no tab.
func OfIntent(r driver.PrepareRequest) string {
	return Text(driver.Origin{ID: r.Nonce, Owner: r.Owner, By: r.By})
}

// ID returns the ID of an operation.
func ID(text string) string {
	id, _, _ := strings.Cut(text, "\t")
	return id
}

// Parse is the reverse of Text. An owner may hold tabs; nothing else does.
func Parse(text string) driver.Origin {
	id, rest, _ := strings.Cut(text, "\t")
	i := strings.LastIndexByte(rest, '\t')
	if i < 0 {
		return driver.Origin{ID: id, Owner: rest}
	}
	return driver.Origin{ID: id, Owner: rest[:i], By: rest[i+1:]}
}
