package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Right is what a rule allows.
type Right string

const (
	// Read allows reading refs.
	Read Right = "read"
	// Lock allows locking refs, and reading them.
	Lock Right = "lock"
	// Write allows changing refs, and reading them. It doesn't allow locking them.
	Write Right = "write"
	// Administer allows everything, including changes of refs of projects of which sites have
	// repositories.
	Administer Right = "administer"
)

// Rights are all rights.
var Rights = [...]Right{Read, Lock, Write, Administer}

// CheckRight returns an error wrapping driver.ErrInvalid if there is no such right.
func CheckRight(r Right) error {
	for _, known := range Rights {
		if r == known {
			return nil
		}
	}
	return fmt.Errorf("%w right %.20q: give read, lock, write or administer", driver.ErrInvalid, string(r))
}

// implies reports whether whoever has r has other, too.
func (r Right) implies(other Right) bool {
	return r == other || r == Administer || other == Read && (r == Lock || r == Write)
}

// A Pattern selects names: a name selects itself, PREFIX/* all names below PREFIX/, and * all names.
type Pattern string

// All selects all names.
const All Pattern = "*"

// Matches reports whether the pattern selects a name.
func (p Pattern) Matches(name string) bool {
	if prefix, ok := p.Prefix(); ok {
		return strings.HasPrefix(name, prefix)
	}
	return name == string(p)
}

// Prefix returns the prefix of all names that the pattern selects; false if it selects a single name.
func (p Pattern) Prefix() (string, bool) {
	if p == All {
		return "", true
	}
	if strings.HasSuffix(string(p), "/*") {
		return strings.TrimSuffix(string(p), "*"), true
	}
	return "", false
}

// Disjoint returns those of the patterns that select all that any selects, each name once, in the order of
// what they select.
func Disjoint(patterns []Pattern) []Pattern {
	all := slices.DeleteFunc(slices.Clone(patterns), func(p Pattern) bool {
		return slices.ContainsFunc(patterns, func(other Pattern) bool { return other != p && other.covers(p) })
	})
	slices.SortFunc(all, func(a, b Pattern) int { return strings.Compare(a.start(), b.start()) })
	return slices.Compact(all)
}

// start returns the name, or the prefix of all names, that the pattern selects.
func (p Pattern) start() string {
	if prefix, ok := p.Prefix(); ok {
		return prefix
	}
	return string(p)
}

// covers reports whether the pattern selects all that another one selects.
func (p Pattern) covers(other Pattern) bool {
	prefix, ok := p.Prefix()
	return ok && strings.HasPrefix(other.start(), prefix)
}

// check returns an error wrapping driver.ErrInvalid unless the pattern selects names that valid accepts.
func (p Pattern) check(what string, valid func(string) error) error {
	prefix, ok := p.Prefix()
	switch {
	case p == All:
		return nil
	case ok && prefix == "/", strings.Contains(strings.TrimSuffix(string(p), "/*"), "*"):
		return fmt.Errorf("%w pattern %.100q of %s: give a name, PREFIX/* or *", driver.ErrInvalid, string(p), what)
	case ok:
		return valid(prefix + "x")
	}
	return valid(string(p))
}

// A Rule gives a subject a right on projects and refs.
type Rule struct {
	ID       string    `json:"-"` // follows from what the rule allows
	Subject  string    `json:"subject"`
	Projects Pattern   `json:"projects"`
	Refs     Pattern   `json:"refs"`
	Right    Right     `json:"right"`
	By       string    `json:"by,omitempty"` // who added it
	Created  time.Time `json:"-"`            // by the database's clock
}

// Check returns an error wrapping driver.ErrInvalid if the rule is invalid.
func (r Rule) Check() error {
	err := CheckSubject(r.Subject)
	if err == nil {
		err = CheckRight(r.Right)
	}
	if err == nil {
		err = r.Projects.check("projects", driver.CheckProject)
	}
	if err == nil {
		err = r.Refs.check("refs", driver.CheckRef)
	}
	return err
}

// id returns the ID of rules that allow the same.
func (r Rule) id() string {
	sum := sha256.New()
	for _, part := range []string{r.Subject, string(r.Projects), string(r.Refs), string(r.Right)} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
