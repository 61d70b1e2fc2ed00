package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// CreateToken creates a token of a subject, which is valid for the time life by the database's clock,
// and returns its text, which the database does not have. If the error wraps refdb.ErrOutcomeUnknown,
// the database may have the token; nobody knows its text.
func CreateToken(ctx context.Context, db *refdb.DB, subject string, life time.Duration, by string) (text string, t Token, err error) {
	if err := errors.Join(CheckTokenSubject(subject), checkLife(life)); err != nil {
		return "", Token{}, err
	}
	now, err := db.Now(ctx)
	if err != nil {
		return "", Token{}, fmt.Errorf("creating a token: %w", err)
	}
	text = newSecret()
	id, _ := idOf(text)
	t = Token{ID: id, Subject: subject, Expires: now.Add(life).UTC().Truncate(time.Second), By: by, Created: now}
	if err := create(ctx, db, tokenPrefix+id, t); err != nil {
		return "", t, fmt.Errorf("creating a token: %w", err)
	}
	return text, t, nil
}

// RevokeToken removes a token.
func RevokeToken(ctx context.Context, db *refdb.DB, id string) error {
	return remove(ctx, db, tokenPrefix+id)
}

// AddRule adds a rule, and returns it with its ID. It returns false if a rule that allows the same
// exists already.
func AddRule(ctx context.Context, db *refdb.DB, r Rule) (Rule, bool, error) {
	if err := r.Check(); err != nil {
		return r, false, err
	}
	r.ID = r.id()
	err := create(ctx, db, rulePrefix+r.ID, r)
	switch {
	case errors.Is(err, refdb.ErrMismatch):
		return r, false, nil
	case err != nil:
		return r, false, fmt.Errorf("adding a rule: %w", err)
	}
	return r, true, nil
}

// RemoveRule removes a rule.
func RemoveRule(ctx context.Context, db *refdb.DB, id string) error {
	return remove(ctx, db, rulePrefix+id)
}

func create(ctx context.Context, db *refdb.DB, ref string, record any) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return db.Update(ctx, project, []refdb.Update{{Ref: ref, New: refdb.Value(value)}})
}

func remove(ctx context.Context, db *refdb.DB, ref string) error {
	value, err := db.Get(ctx, project, ref)
	if err != nil {
		return err
	}
	if value.IsAbsent() {
		return ErrNotFound
	}
	err = db.Update(ctx, project, []refdb.Update{{Ref: ref, Old: value, New: refdb.Deleted}})
	if mismatch := (*refdb.MismatchError)(nil); errors.As(err, &mismatch) && mismatch.Mismatches[0].Have.IsAbsent() {
		return ErrNotFound
	}
	return err
}

// Records are all tokens and rules, in the order of their IDs.
type Records struct {
	Tokens []Token
	Rules  []Rule
	// Unreadable is how many records this version can't read, because a later version wrote them, or
	// somebody by hand. They allow nothing.
	Unreadable int
}

// ReadRecords reads all tokens and rules.
func ReadRecords(ctx context.Context, db *refdb.DB) (all Records, err error) {
	for ref, err := range db.Refs(ctx, project, recordPrefix) {
		if err != nil {
			return Records{}, fmt.Errorf("reading the tokens and rules: %w", err)
		}
		if !all.add(ref) {
			all.Unreadable++
		}
	}
	return all, nil
}

func (all *Records) add(ref driver.Ref) bool {
	if id, ok := strings.CutPrefix(ref.Name, tokenPrefix); ok {
		t := Token{ID: id, Created: ref.Time}
		if decode(string(ref.Value), &t) != nil || CheckTokenSubject(t.Subject) != nil {
			return false
		}
		all.Tokens = append(all.Tokens, t)
		return true
	}
	if id, ok := strings.CutPrefix(ref.Name, rulePrefix); ok {
		r := Rule{ID: id, Created: ref.Time}
		if decode(string(ref.Value), &r) != nil || r.Check() != nil || r.id() != id {
			return false
		}
		all.Rules = append(all.Rules, r)
		return true
	}
	return false
}
