// Package access has the tokens and rules of refdb-server: which subject a bearer token names, and
// what a subject may do. The database keeps both as refs of the project in which sites keep their
// records, so that every server has the same tokens and rules, and the history records who changed
// them.
//
// A subject may do what any of its rules allows. Without a rule it may do nothing.
package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

const (
	// project has the tokens and rules. No repository can be a copy of it, so no push can write them.
	project = config.SitesProject
	// The last part of a token's ref is the SHA-256 of the token, that of a rule's its ID.
	recordPrefix = "refs/access/"
	tokenPrefix  = recordPrefix + "tokens/"
	rulePrefix   = recordPrefix + "rules/"
	// Refs below confirmationPrefix are locked for a moment, and have no value.
	confirmationPrefix = recordPrefix + "confirmations/"
)

// maxSubject leaves room for the rest of an owner's name, and for the history's 200 bytes.
const maxSubject = 100

var (
	// ErrUnauthenticated: the token is malformed, unknown, revoked or expired.
	ErrUnauthenticated = errors.New("the token is not valid: it may be mistyped, expired or revoked")
	// ErrDenied: no rule allows the request.
	ErrDenied = errors.New("no rule allows this")
	// ErrStale: the rules were read too long ago to decide by them.
	ErrStale = errors.New("the rules can't be read from the database")
	// ErrNotFound: no such token or rule.
	ErrNotFound = errors.New("not found")
)

// Reserved reports whether a project holds internal records, which no rule gives access to.
func Reserved(name string) bool { return name == project }

// ConfirmationRefs returns the prefix of refs that only servers lock, to confirm what was committed
// earlier: see grants.Handle.Confirm.
func ConfirmationRefs() (inProject, prefix string) { return project, confirmationPrefix }

// CheckSubject returns an error wrapping driver.ErrInvalid if name can't be a subject's: if it is empty
// or over 100 bytes, has a slash, an asterisk or a character that is not graphic, or starts or ends
// with a space.
func CheckSubject(name string) error {
	switch {
	case name == "" || len(name) > maxSubject || !utf8.ValidString(name):
	case strings.ContainsAny(name, "/*") || strings.TrimSpace(name) != name:
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }):
	default:
		return nil
	}
	return fmt.Errorf("%w subject %.120q: give 1 to %d bytes of UTF-8 without \"/\", \"*\" and control characters", driver.ErrInvalid, name, maxSubject)
}

// Owner returns the owner of a subject's lock. It starts with a slash: its site's name is empty, which
// no site's name is.
func Owner(subject, lock string) string { return "/" + subject + "/" + lock }

// Owns reports whether a lock with that owner is the subject's.
func Owns(subject, owner string) bool { return strings.HasPrefix(owner, "/"+subject+"/") }

// SubjectOf returns the subject that holds a lock with that owner; false if the holder is not a
// subject, but a site's process.
func SubjectOf(owner string) (string, bool) {
	rest, ok := strings.CutPrefix(owner, "/")
	if !ok {
		return "", false
	}
	subject, _, ok := strings.Cut(rest, "/")
	return subject, ok
}

// decode reads a record. A record with a field that this version does not know is refused: the field
// may restrict what the record allows.
func decode(value string, record any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.DisallowUnknownFields()
	return d.Decode(record)
}
