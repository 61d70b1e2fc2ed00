// Package access has the tokens and rules of refdb-server: which subject a credential names, and what a
// subject may do. The database keeps both as refs of the project in which sites keep their
// records, so that every server has the same tokens and rules, and the history records who changed
// them.
//
// A subject may do what any of its rules allows. Without a rule it may do nothing.
package access

import (
	"bytes"
	"encoding/json"
	"errors"

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
	// sealRef has the key of sessions. It is not below recordPrefix: earlier versions would report it as
	// unreadable.
	sealRef = "refs/sessions/key"
)

var (
	// ErrUnauthenticated: the credential is malformed, unknown, revoked or expired.
	ErrUnauthenticated = errors.New("the credential is not valid: it may be mistyped, expired or revoked")
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

// decode reads a record. A record with a field that this version does not know is refused: the field
// may restrict what the record allows.
func decode(value string, record any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.DisallowUnknownFields()
	return d.Decode(record)
}
