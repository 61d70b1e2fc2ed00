//go:build linux

package sites

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	keepTables = `DO $$ DECLARE t text; BEGIN
  CREATE SCHEMA kept;
  FOR t IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
    EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', t, t);
  END LOOP;
END $$`

	// restoreTables is what pg_restore --data-only --disable-triggers does.
	restoreTables = `DO $$ DECLARE t text; BEGIN
  SET LOCAL session_replication_role = replica;
  FOR t IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'kept'::regnamespace LOOP
    EXECUTE format('DELETE FROM public.%I', t);
    EXECUTE format('INSERT INTO public.%I SELECT * FROM kept.%I', t, t);
  END LOOP;
END $$`
)

// The rows alone are put back, in one transaction, and the tables stay: nothing tells the server from before. Sites find it within
// a minute.
func TestRowsThatArePutBackBehindTheServersBackAreNoticedWithinAMinute(t *testing.T) {
	if !long() {
		t.Skip("left out: rows that are put back into the tables that are there, which takes a minute to notice; REFDB_TEST_LONG=1 runs it")
	}
	c, s := newRestartable(t)
	if err := s.Exec(t.Context(), "refdb", keepTables); err != nil {
		t.Fatal(err)
	}
	c.eu.pushed(c.h.b + ":refs/heads/x")
	c.us.sync()
	time.Sleep(2 * time.Second) // a comparison soon after a start, which may come later, would find it sooner
	if err := s.Exec(t.Context(), "refdb", restoreTables); err != nil {
		t.Fatal(err)
	}
	began, values, early := time.Now(), []string{c.h.a, c.h.b, c.h.c}, 0
	us := c.us.impatient(wire.DefaultLimit)
	for {
		p := us.push("+" + values[early%3] + ":refs/heads/new")
		if strings.Contains(p.said, wire.DatabaseLost) {
			break
		}
		if p.ok {
			early++
		}
		if time.Since(began) > patience {
			t.Fatalf("it was not noticed: %+v", p)
		}
		time.Sleep(time.Second)
	}
	t.Logf("noticed after %s; %d pushes were acknowledged before", time.Since(began).Round(time.Millisecond), early)
	c.isHalted(c.eu)
	t.Log(c.eu.must("recover", "--reason", "test", "-y"))
	if got := c.global(project)["refs/heads/x"]; got != c.h.b {
		t.Errorf("the database has %q", got)
	}
	c.caughtUp()
}
