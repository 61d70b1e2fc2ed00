package access

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// maxSubject is the history's limit for the name of whoever made a change.
const maxSubject = 200

// A subject has one of four forms, so that credentials of different kinds never name the same one:
//
//	NAME            of a token: without a colon and a slash
//	ISSUER:VALUE    of a JWT: the name of its issuer, without a colon, and the value of a claim
//	SCHEME://…      of a certificate: a URI
//	@user:NAME      of a person whom a proxy has authenticated
//
// No value of a JWT starts with "//", and no issuer's name has an "@".

// userPrefix begins the subject of a person whom a proxy has authenticated.
const userPrefix = "@user:"

// CheckSubject returns an error wrapping driver.ErrInvalid if no credential can name such a subject: if
// it is empty or over 200 bytes, has an asterisk or a character that is not graphic, starts or ends with a
// space, or has a slash but no colon before it.
func CheckSubject(name string) error {
	before, _, slash := strings.Cut(name, "/")
	switch {
	case name == "" || len(name) > maxSubject || !utf8.ValidString(name):
	case strings.Contains(name, "*") || strings.TrimSpace(name) != name:
	case slash && strings.IndexByte(before, ':') < 1:
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) }):
	default:
		return nil
	}
	return fmt.Errorf("%w subject %.220q: give 1 to %d bytes of UTF-8 without \"*\" and control characters, and without \"/\" "+
		"unless it is ISSUER:VALUE or a URI", driver.ErrInvalid, name, maxSubject)
}

// CheckTokenSubject returns an error wrapping driver.ErrInvalid if no token can name such a subject: as
// [CheckSubject], and if it has a colon, as subjects of JWTs and certificates do.
func CheckTokenSubject(name string) error {
	if strings.Contains(name, ":") {
		return fmt.Errorf("%w subject %.220q of a token: only subjects of issuers and certificates have a colon", driver.ErrInvalid, name)
	}
	return CheckSubject(name)
}

// SubjectOfClaim returns the subject of a JWT: its issuer has that name, and its claim that value. Two
// pairs never give the same subject. The error wraps driver.ErrInvalid if the pair gives none.
func SubjectOfClaim(issuer, value string) (string, error) {
	if issuer == "" || strings.ContainsAny(issuer, ":/@") || value == "" || strings.HasPrefix(value, "//") {
		return "", fmt.Errorf("%w claim %.220q of the issuer %.100q: it can't be part of a subject", driver.ErrInvalid, value, issuer)
	}
	subject := issuer + ":" + value
	return subject, CheckSubject(subject)
}

// SubjectOfUser returns the subject of a person whom a proxy has authenticated under that name. The error
// wraps driver.ErrInvalid if the name gives none.
func SubjectOfUser(name string) (string, error) {
	if name == "" || strings.HasPrefix(name, "/") || strings.TrimSpace(name) != name {
		return "", fmt.Errorf("%w user %.220q: the name can't be part of a subject", driver.ErrInvalid, name)
	}
	subject := userPrefix + name
	return subject, CheckSubject(subject)
}

// SubjectOfURI returns the subject of a certificate with that URI, such as a SPIFFE ID: the URI itself.
// The error wraps driver.ErrInvalid unless it is SCHEME://NAME/PATH of letters, digits, hyphens, dots and
// underscores, with lower-case letters up to the path, as in SPIFFE IDs: such a URI has one spelling.
func SubjectOfURI(uri string) (string, error) {
	const lower = "abcdefghijklmnopqrstuvwxyz0123456789-._"
	scheme, rest, found := strings.Cut(uri, "://")
	name, path, _ := strings.Cut(rest, "/")
	ok := found && scheme != "" && name != "" && strings.Trim(scheme, lower) == "" && strings.Trim(name, lower) == ""
	for _, part := range strings.Split(path, "/") {
		ok = ok && part != "" && part != "." && part != ".." && strings.Trim(part, lower+"ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	}
	if !ok {
		return "", fmt.Errorf("%w URI %.220q of a certificate: a subject is SCHEME://NAME/PATH of letters, digits, \"-\", \".\" and \"_\"", driver.ErrInvalid, uri)
	}
	return uri, CheckSubject(uri)
}

// An owner has the subject without slashes.
var (
	escape   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescape = strings.NewReplacer("%25", "%", "%2F", "/")
)

// Owner returns the owner of a subject's lock. It starts with a slash: its site's name is empty, which
// no site's name is. A slash in the subject is written as "%2F", a percent sign as "%25".
func Owner(subject, lock string) string { return "/" + escape.Replace(subject) + "/" + lock }

// Owns reports whether a lock with that owner is the subject's.
func Owns(subject, owner string) bool {
	return strings.HasPrefix(owner, Owner(subject, ""))
}

// SubjectOf returns the subject that holds a lock with that owner; false if the holder is not a
// subject, but a site's process.
func SubjectOf(owner string) (string, bool) {
	rest, ok := strings.CutPrefix(owner, "/")
	if !ok {
		return "", false
	}
	subject, _, ok := strings.Cut(rest, "/")
	return unescape.Replace(subject), ok
}
