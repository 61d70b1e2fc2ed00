//go:build linux

package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const leaseName = "nightly build/eu"

func (w *world) acquireLease(tb testing.TB, db *refdb.DB, mode lease.Mode) *lease.Lease {
	tb.Helper()
	l, err := lease.Acquire(tb.Context(), db, "p", leaseName, mode)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// hasNoLease checks that no lock is left of a lease.
func (w *world) hasNoLease(tb testing.TB) {
	tb.Helper()
	if out := w.do(tb, "locks", "list", "-o", "json", "--prefix", "refs/leases/"); strings.TrimSpace(out) != "[]" {
		tb.Errorf("left over: %s", out)
	}
}

func TestLockRunsACommandUnderALease(t *testing.T) {
	t.Parallel()
	for flag, mode := range map[string]lease.Mode{"--shared": lease.Shared, "--exclusive": lease.Exclusive} {
		t.Run(flag, func(t *testing.T) {
			w := newWorld(t)
			out := w.do(t, "lock", "p", flag, leaseName, "--", "sh", "-c", `printf '%s|%s|%s|%s' "$REFDB_PROJECT" "$REFDB_REFS" "$REFDB_TOKEN" "$REFDB_OWNER"`)
			f := strings.Split(out, "|")
			if len(f) != 4 || f[0] != "p" || !strings.HasPrefix(f[3], "here/") {
				t.Fatalf("got %q", out)
			}
			if name, m, ok := lease.ParseRef(f[1]); !ok || name != leaseName || m != mode {
				t.Errorf("the ref is %q", f[1])
			}
			if token, err := strconv.ParseInt(f[2], 10, 64); err != nil || token <= 0 {
				t.Errorf("the token is %q", f[2])
			}
			w.run(t, "lock", "p", flag, leaseName, "--", "sh", "-c", "exit 42").is(t, 42, "")
			w.hasNoLease(t)
		})
	}
}

func TestWhoHasALeaseDecidesWhetherTheCommandRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.open(t)
	for _, c := range []struct {
		held lease.Mode
		flag string
		code int
	}{
		{lease.Shared, "--shared", exit.OK},
		{lease.Shared, "--exclusive", exit.Locked},
		{lease.Exclusive, "--shared", exit.Locked},
		{lease.Exclusive, "--exclusive", exit.Locked},
	} {
		l := w.acquireLease(t, db, c.held)
		says, waits := "", []string{"--try"}
		if c.code == exit.OK {
			waits = append(waits, "--wait=10m")
		} else {
			says = l.Ref()
		}
		for _, wait := range waits {
			r := w.run(t, "lock", "p", c.flag, leaseName, wait, "--", "echo", "ran")
			r.is(t, c.code, says)
			if ran := r.out == "ran\n"; ran != (c.code == exit.OK) {
				t.Errorf("%s beside a %s one: it ran: %t", c.flag, c.held, ran)
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.hasNoLease(t)
}

func TestALeaseIsWaitedForWithinWait(t *testing.T) {
	t.Parallel()
	for held, flags := range map[lease.Mode][]string{lease.Shared: {"--exclusive"}, lease.Exclusive: {"--shared", "--exclusive"}} {
		for _, flag := range flags {
			inBubble(t, func(t *testing.T, w *world) {
				l := w.acquireLease(t, w.open(t), held)
				r := w.run(t, "lock", "p", flag, leaseName, "--wait=1s", "--", "true")
				r.is(t, exit.Locked, "not within --wait 1s")
				r.isTwoLines(t, "waiting: ref is locked: p "+l.Ref())
			})
		}
	}
}

func TestACommandUnderALeaseCantTakeItAgain(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for outer, inner := range map[string]string{"--shared": "--shared", "--exclusive": "--shared"} {
		w := newWorld(t)
		w.env[asProgram] = "1"
		cmd := w.program(t, "lock", "p", outer, leaseName, "--", self, "lock", patientLock, "p", inner, leaseName, "--", "echo", "ran")
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != exit.Locked || !strings.Contains(string(out), "would wait for itself") || strings.Contains(string(out), "ran\n") {
			t.Errorf("%s in %s: %v: %s", inner, outer, err, out)
		}
		cmd = w.program(t, "lock", "p", outer, leaseName, "--", self, "lock", patientLock, "p", inner, "another", "--", "echo", "ran")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "ran\n" {
			t.Errorf("another lease: %v: %s", err, out)
		}
	}
}

func TestTheCommandPutsAnyRefUnderItsLease(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	put := `"$SELF" refs put "$REFDB_PROJECT" refs/heads/main ` + id("1") + ` --old none --token "$REFDB_TOKEN" --fence "$REFDB_REFS"`
	for _, c := range []struct {
		name, script string
		code         int
	}{
		{"of another lock", strings.Replace(put, `"$REFDB_REFS"`, mainRef, 1), exit.Lost},
		{"of another token", strings.Replace(put, `"$REFDB_TOKEN"`, "7", 1), exit.Lost},
		{"without --fence", strings.Replace(put, ` --fence "$REFDB_REFS"`, "", 1), exit.Lost},
		{"as it stands", put, exit.OK},
	} {
		cmd := w.program(t, "lock", "p", "--shared", leaseName, "--", "sh", "-c", c.script)
		cmd.Env = append(cmd.Env, "SELF="+self)
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%s: %v: %s", c.name, err, out)
		}
	}
	if got := w.do(t, "refs", "get", "p", mainRef); got != id("1")+"\n" {
		t.Errorf("it holds %s", got)
	}
	w.run(t, "refs", "put", "p", mainRef, id("2"), "--old", id("1"), "--fence", mainRef).is(t, exit.Misuse, "--fence needs the --token")
	w.run(t, "refs", "put", "p", mainRef, id("2"), "--old", id("1"), "--token", "7", "--owner", "x", "--fence", "no ref").is(t, exit.Misuse, "--fence: invalid ref")
}

func TestWhatIsNoLeaseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for args, says := range map[string]string{
		"lock p refs/heads/main --shared x -- true": "give only PROJECT",
		"lock --exclusive x -- true":                "give only PROJECT",
		"lock p --shared x --exclusive y -- true":   "none of the others can be",
		"lock p --shared= -- true":                  "give 1 to 500",
		"lock RECLAIM_p --shared x -- true":         "reserved",
	} {
		r := w.run(t, strings.Fields(args)...)
		if r.code == exit.OK || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d: %s", args, r.code, r.err)
		}
	}
}

func TestLocksListShowsWhoHasALeaseAndWhoWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.open(t)
	holder := w.acquireLease(t, db, lease.Shared)
	done := make(chan error, 1)
	go func() {
		l, err := lease.Acquire(t.Context(), db, "p", leaseName, lease.Exclusive)
		if err == nil {
			err = l.Release(t.Context())
		}
		done <- err
	}()
	type rowJSON struct {
		Ref, Lease string
		LeaseMode  string `json:"lease_mode"`
		LeaseWaits bool   `json:"waits"`
	}
	var rows []rowJSON
	eventually(t, "a holder and a waiter", func() bool {
		rows = decode[[]rowJSON](t, w.do(t, "locks", "list", "-o", "json"))
		return len(rows) == 2
	})
	if r := rows[0]; r.Lease != leaseName || r.LeaseMode != "exclusive" || !r.LeaseWaits {
		t.Errorf("the waiter is %+v", r)
	}
	if r := rows[1]; r.Ref != holder.Ref() || r.Lease != leaseName || r.LeaseMode != "shared" || r.LeaseWaits {
		t.Errorf("the holder is %+v", r)
	}
	// Also if the filter leaves the other one out.
	for ref, want := range map[string]string{rows[0].Ref: "fresh, waits: exclusive", rows[1].Ref: "fresh, shared"} {
		if out := w.do(t, "locks", "list", "--ref", ref); !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
		if out := w.do(t, "locks", "show", "p", ref); !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if err := holder.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
