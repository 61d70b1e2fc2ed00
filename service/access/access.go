// Package access has the credentials and the rules of refdb-server: which bearer tokens name which
// subject, and what a subject may do. The database keeps both as refs of the project in which sites
// keep their records, so that every server has the same, and the history has who changed them.
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
	// project has the records. No repository can be a copy of it, so no push can write them.
	project = config.SitesProject
	// The last part of a token's ref is the SHA-256 of the token, that of a rule's its ID.
	recordPrefix = "refs/access/"
	tokenPrefix  = recordPrefix + "tokens/"
	rulePrefix   = recordPrefix + "rules/"
	// Refs below it are locked for a moment, and hold nothing.
	confirmationPrefix = recordPrefix + "confirmations/"
)

// maxSubject leaves room for the rest of an owner's name, and for the history's 200 bytes.
const maxSubject = 100

var (
	// ErrUnauthenticated: the token is malformed, unknown, revoked or expired.
	ErrUnauthenticated = errors.New("the token is not valid: it may be mistyped, expired or revoked")
	// ErrDenied: no rule allows the request.
	ErrDenied = errors.New("no rule allows this")
	// ErrStale: the rules were not read recently enough to decide by them.
	ErrStale = errors.New("the rules can't be read from the database")
	// ErrNotFound: no such token or rule.
	ErrNotFound = errors.New("not found")
)

// Reserved reports whether a project holds internal records, which no rule gives access to.
func Reserved(name string) bool { return name == project }

// ConfirmationRef returns a ref that only a server locks, to confirm what was committed earlier: see
// grants.Handle.Confirm. The ID makes it another one for each request.
func ConfirmationRef(id string) (inProject, ref string) { return project, confirmationPrefix + id }

// CheckSubject returns an error wrapping driver.ErrInvalid if name can't be a subject's: empty, over
// 100 bytes, with a slash or an asterisk, with a space at its start or end, or with characters that are not graphic.
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

// Owner returns the name under which a subject's lock is held. It starts with a slash, and so with an
// empty site's name, which no site can have.
func Owner(subject, lock string) string { return "/" + subject + "/" + lock }

// Owns reports whether a lock under that owner's name is the subject's.
func Owns(subject, owner string) bool { return strings.HasPrefix(owner, "/"+subject+"/") }

// SubjectOf returns the subject that holds a lock under that owner's name; false if the holder is not
// a subject, but a site's process.
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
