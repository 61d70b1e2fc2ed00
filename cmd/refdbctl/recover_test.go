package main

import (
	"context"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A forgetful driver loses the reply to the step that ends a recovery.
type forgetful struct {
	refdb.Driver
	recovered bool
}

func (d *forgetful) Recover(ctx context.Context, r driver.RecoverRequest) (driver.Recovered, error) {
	answer, err := d.Driver.Recover(ctx, r)
	if err == nil && answer.Done && !d.recovered {
		d.recovered, err = true, refdb.ErrOutcomeUnknown
	}
	return answer, err
}

func TestARecoverySaysOfWhichChangesItDidNotLearnWhatWasDecided(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	w.Exec(t, `UPDATE admission SET server = ''`)
	w.Exec(t, `INSERT INTO lost (project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported)
		VALUES ('p', '`+mainRef+`', 'OP', '`+id("c")+`', '`+id("b")+`', 'eu/1', 'alice', 0, '', 1, 'eu', '', 1)`)
	w.wrap = func(d refdb.Driver) refdb.Driver { return &forgetful{Driver: d} }
	const says = "; the reply about 1 was lost: refdbctl recover --status lists them"
	r := w.run(t, "recover", "--reason=test", "--yes")
	if r.code != exit.OK || !strings.Contains(r.out+r.err, says) {
		t.Errorf("status %d, %s%s", r.code, r.out, r.err)
	}
	if got := w.do(t, "audit", "list"); !strings.Contains(got, says) {
		t.Errorf("the audit says\n%s", got)
	}
	if got := w.do(t, "recover", "--status"); !strings.Contains(got, "opposed") {
		t.Errorf("what was decided is\n%s", got)
	}
}

func TestARecoveryWaitsForSitesAndGoesWithoutThoseThatAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	said := func(want int, says string, args ...string) {
		t.Helper()
		r := w.run(t, append([]string{"recover"}, args...)...)
		if r.code != want || !strings.Contains(r.out+r.err, says) {
			t.Errorf("recover %q: status %d, want %d and %q:\n%s%s", args, r.code, want, says, r.out, r.err)
		}
	}
	said(exit.OK, "nothing is to be recovered", "--reason=test", "--yes")

	// Another server, on which a change is lost that eu knows, and which us has not compared.
	w.Exec(t, `UPDATE admission SET server = ''`)
	w.Exec(t, `INSERT INTO witnesses (name, server, away, without, since) VALUES ('eu', '', 1, 0, 1), ('us', '', 0, 0, 1)`)
	for _, old := range []string{"a", "c"} { // the second contradicts what is there
		w.Exec(t, `INSERT INTO lost (project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported)
			VALUES ('p', '`+mainRef+`', 'OP`+old+`', '`+id(old)+`', '`+id("b")+`', 'eu/1', 'alice', 0, '', 1, 'eu', '', 1)`)
	}
	said(exit.Misuse, "--reason TEXT")
	said(exit.Misuse, "add --yes", "--reason=test")
	said(exit.Misuse, "only shows the state", "--status", "--reason=test")
	said(exit.OK, "us", "--status")
	said(exit.Failed, "start the site's daemon there, or add --without us", "--reason=test", "--yes")
	said(exit.Misuse, "--without su", "--reason=test", "--yes", "--without=su")
	said(exit.Misuse, "--without eu", "--reason=test", "--yes", "--without=us", "--without=eu") // it is away
	if r := w.run(t, "refs", "put", "p", mainRef, id("c"), "--old", id("a")); r.code == exit.OK || !strings.Contains(r.err, "refdbctl recover") {
		t.Errorf("it was written meanwhile: %s%s", r.out, r.err)
	}
	said(exit.OK, "1 written again, 1 opposed, 0 dropped", "--reason=test", "--yes", "--without=us")
	said(exit.OK, "opposed", "--status")
	said(exit.OK, "nothing is to be recovered", "--reason=test", "--yes")
	if got := w.do(t, "refs", "log", "p", mainRef); !strings.Contains(got, "alice") || !strings.Contains(got, "eu/1") {
		t.Errorf("the log does not say whose change it was:\n%s", got)
	}
	if got := w.do(t, "audit", "list"); strings.Count(got, "recover") != 1 || !strings.Contains(got, "1 written again") {
		t.Errorf("the audit says\n%s", got)
	}
}
