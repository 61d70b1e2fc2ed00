package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
)

const (
	presenceProject = "refdb/sites"
	presenceRef     = "refs/sites/eu-1"
)

// servedSite is a site whose daemon runs in a process of its own.
type servedSite struct {
	w           *world
	dir, config string
	daemon      *exec.Cmd
	log         func() string
}

// newServed starts the daemon of a site with an empty state directory.
func (w *world) newServed(t *testing.T) *servedSite {
	t.Helper()
	s := w.atSite(t)
	s.start(t)
	return s
}

func (w *world) atSite(t *testing.T) *servedSite {
	t.Helper()
	dir := t.TempDir()
	return &servedSite{w: w, dir: dir, config: siteConfig(t, dir, "")}
}

func (s *servedSite) state() string { return filepath.Join(s.dir, "state") }

// start waits until the daemon serves.
func (s *servedSite) start(t *testing.T) {
	t.Helper()
	s.daemon, s.log = s.w.serving(t, s.config)
	awaitStatus(t, s.dir, "serving", client.Status.OK)
}

// refused starts the daemon, which must end by itself and log the given texts.
func (s *servedSite) refused(t *testing.T, says ...string) {
	t.Helper()
	daemon, log := s.w.serving(t, s.config)
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended well")
		}
	case <-time.After(patience):
		t.Fatalf("it serves:\n%s", log())
	}
	for _, text := range says {
		if !strings.Contains(log(), text) {
			t.Errorf("it does not say %q:\n%s", text, log())
		}
	}
}

func (s *servedSite) end(t *testing.T, with syscall.Signal) {
	t.Helper()
	s.daemon.Process.Signal(with)
	s.daemon.Wait()
}

// copied returns another site directory with a copy of the state, made by cp -a.
func (s *servedSite) copied(t *testing.T) *servedSite {
	t.Helper()
	other := s.w.atSite(t)
	s.copyState(t, other)
	return other
}

func (s *servedSite) copyState(t *testing.T, to *servedSite) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", s.state(), to.state()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// edit changes fields of the state's record.
func (s *servedSite) edit(t *testing.T, change map[string]any) {
	t.Helper()
	path := filepath.Join(s.state(), "generation")
	b, err := os.ReadFile(path)
	record := map[string]any{}
	if err == nil {
		err = json.Unmarshal(b, &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(record, change)
	if b, err = json.Marshal(record); err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *servedSite) recorded(t *testing.T) (current, next string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.state(), "generation"))
	if err != nil {
		t.Fatal(err)
	}
	record := decode[struct{ Current, Next string }](t, string(b))
	return record.Current, record.Next
}

// record replaces the state's record.
func (s *servedSite) record(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.state(), "generation"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// recordHere records the state's present directory: then nothing tells a copy from the original.
func (s *servedSite) recordHere(t *testing.T) {
	t.Helper()
	info, err := os.Stat(s.state())
	if err != nil {
		t.Fatal(err)
	}
	s.edit(t, map[string]any{"directory": info.Sys().(*syscall.Stat_t).Ino})
}

// generation returns the generation that the database has; "" if it has none.
func (w *world) generation(t *testing.T) string {
	t.Helper()
	v, err := w.open(t).Get(t.Context(), presenceProject, presenceRef)
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// setGeneration sets the database's generation, as restoring a backup does.
func (w *world) setGeneration(t *testing.T, id string) {
	t.Helper()
	db := w.open(t)
	if _, err := db.Put(t.Context(), presenceProject, presenceRef, refdb.Value(id)); err != nil {
		t.Fatal(err)
	}
}

// staysFresh keeps the lock that a dead daemon has left on the site's name fresh, however slow the machine is.
func (w *world) staysFresh(t *testing.T) {
	t.Helper()
	w.Age(t, presenceProject, presenceRef, -time.Hour)
}

// goesStale ends the lease of a lock on the site's name that a dead daemon has left.
func (w *world) goesStale(t *testing.T) {
	t.Helper()
	w.Age(t, presenceProject, presenceRef, 3*time.Hour)
}

func TestACopyOfTheStateIsNoSecondDaemon(t *testing.T) {
	t.Parallel()
	for _, alive := range []bool{true, false} {
		name := map[bool]string{true: "while the first runs", false: "after the first was killed"}[alive]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.newServed(t)
			second := first.copied(t)
			if !alive {
				first.end(t, syscall.SIGKILL)
			}
			second.refused(t, "site.state was copied or moved", "refdbctl site take-over")
			if !alive {
				first.start(t)
				return
			}
			if s := awaitStatus(t, first.dir, "serving still", client.Status.OK); s.PID != first.daemon.Process.Pid {
				t.Errorf("process %d serves", s.PID)
			}
		})
	}
}

// A copy that nothing tells from the original, such as on a machine cloned with all its IDs,
// waits for the original's lock, and serves only once that is stale; then the original never serves again.
func TestACopyThatLooksLikeTheOriginalWaitsForItsLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.newServed(t)
	second := first.copied(t)
	second.recordHere(t)
	// As from another machine: nothing proves that its process has ended.
	file := filepath.Join(second.state(), "owners")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	owner, _, _ := strings.Cut(string(text), " ")
	if err := os.WriteFile(file, []byte(owner+" elsewhere:1:1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	second.refused(t, "is served by eu-1/")
	if s := awaitStatus(t, first.dir, "serving still", client.Status.OK); s.PID != first.daemon.Process.Pid {
		t.Errorf("process %d serves", s.PID)
	}
	// Once it is gone, the copy waits for its lease.
	first.end(t, syscall.SIGKILL)
	w.staysFresh(t)
	second.daemon, second.log = w.serving(t, second.config)
	eventually(t, "it waits", func() bool { return strings.Contains(second.log(), "waiting until the lock is stale") })
	if strings.Contains(second.log(), "locks purged") || strings.Contains(second.log(), "msg=serving") {
		t.Errorf("it took a fresh lock:\n%s", second.log())
	}
	w.goesStale(t)
	awaitStatus(t, second.dir, "serving", client.Status.OK)
	first.refused(t, "another state directory has served site")
}

func TestARestartComesBackUnattended(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newServed(t)
	for _, with := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		s.end(t, with)
		s.start(t)
		if strings.Contains(s.log(), "waiting until the lock is stale") {
			t.Errorf("after %s it waited", with)
		}
	}
	// After a reboot, and in a container that runs anew, the process can't be told to have
	// ended; the lock gets stale.
	s.end(t, syscall.SIGKILL)
	w.staysFresh(t)
	file := filepath.Join(s.state(), "owners")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	owner, _, _ := strings.Cut(string(text), " ")
	if err := os.WriteFile(file, []byte(owner+" another-boot:1:1:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.daemon, s.log = w.serving(t, s.config)
	eventually(t, "it waits", func() bool { return strings.Contains(s.log(), "waiting until the lock is stale") })
	w.goesStale(t)
	awaitStatus(t, s.dir, "serving", client.Status.OK)
}

// Wherever a start ends, the next one with the same state serves, unattended.
func TestACrashAtAnyStepOfAStartAllowsTheNextStart(t *testing.T) {
	t.Parallel()
	const old, next = "OLD", "NEXT"
	for name, c := range map[string]struct {
		current, next string // in the state
		database      string
	}{
		"the first start, before anything was written": {"", "", ""},
		"the first start, before the database has it":  {"", next, ""},
		"the first start, when the database has it":    {"", next, next},
		"before anything was written":                  {old, "", old},
		"before the database has it":                   {old, next, old},
		"when the database has it":                     {old, next, next},
		"when the state says that the database has it": {next, "", next},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.atSite(t)
			if err := os.Mkdir(s.state(), 0o700); err != nil {
				t.Fatal(err)
			}
			if c.current != "" || c.next != "" {
				s.record(t, "{}")
				s.edit(t, map[string]any{"current": c.current, "next": c.next})
			}
			if c.database != "" {
				w.setGeneration(t, c.database)
			}
			s.start(t)
			if current, next := s.recorded(t); current != w.generation(t) || next != "" || current == c.database {
				t.Errorf("the state has %q and %q, the database %q", current, next, w.generation(t))
			}
		})
	}
}

func TestAStateThatDidNotServeLastWaitsForAnOperatorsWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*testing.T, *world, *servedSite)
		says  string
	}{
		"of another machine": {func(t *testing.T, _ *world, s *servedSite) {
			s.edit(t, map[string]any{"machine": "0123456789abcdef0123456789abcdef"})
		}, "another /etc/machine-id"},
		"in another directory": {func(t *testing.T, _ *world, s *servedSite) {
			s.edit(t, map[string]any{"directory": 1})
		}, "another directory"},
		"set back": {func(t *testing.T, _ *world, s *servedSite) {
			b, err := os.ReadFile(filepath.Join(s.state(), "generation"))
			if err != nil {
				t.Fatal(err)
			}
			s.start(t)
			s.end(t, syscall.SIGTERM)
			s.record(t, string(b))
		}, "or this one was set back"},
		"lost": {func(t *testing.T, _ *world, s *servedSite) {
			if err := os.RemoveAll(s.state()); err != nil {
				t.Fatal(err)
			}
		}, "and so did not serve site"},
		"with the database set back": {func(t *testing.T, w *world, s *servedSite) { w.setGeneration(t, "EARLIER") }, "or the database was"},
		"with the database set back to before there were generations": {func(t *testing.T, w *world, s *servedSite) {
			w.setGeneration(t, string(refdb.Deleted))
		}, "the database has none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.newServed(t)
			s.end(t, syscall.SIGTERM)
			c.spoil(t, w, s)
			before := w.generation(t)
			s.refused(t, c.says, "refdbctl site take-over")
			w.run(t, "site", "repair", "--config", s.config).is(t, exit.Failed, "refdbctl site take-over")
			if got := w.generation(t); got != before {
				t.Errorf("the refused daemon made %q of %q", got, before)
			}
			if _, ok := w.RowLock(t, presenceProject, presenceRef); ok {
				t.Error("the refused daemon has left a lock")
			}
			w.run(t, "site", "take-over", "--config", s.config).is(t, exit.Misuse, "add --yes")
			w.do(t, "site", "take-over", "--config", s.config, "--yes")
			s.start(t)
		})
	}
}

func TestADaemonNamesAFileOfItsStateThatIsDamaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newServed(t)
	s.end(t, syscall.SIGTERM)
	if err := os.WriteFile(filepath.Join(s.state(), "deletions"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.refused(t, "the daemon's state is damaged: "+filepath.Join(s.state(), "deletions"), "move site.state aside", "refdbctl site take-over")
	if err := os.Rename(s.state(), s.state()+".aside"); err != nil {
		t.Fatal(err)
	}
	w.do(t, "site", "take-over", "--config", s.config, "--yes")
	s.start(t)
}

func TestTakeOverEndsAllOtherCopies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.newServed(t)
	second := first.copied(t)
	takeOver := []string{"site", "take-over", "--config", second.config, "--yes"}
	w.run(t, takeOver...).is(t, exit.Failed, "stop that one")
	w.run(t, "site", "take-over", "--config", first.config, "--yes").is(t, exit.Failed, "a site daemon runs already")
	first.end(t, syscall.SIGTERM)
	w.do(t, takeOver...)
	first.refused(t, "another state directory has served site")
	second.start(t)
	second.end(t, syscall.SIGTERM)
	first.refused(t, "another state directory has served site")
}

// Of two daemons that start at once from copies of one state, both of which look like
// the original, one serves, and the other one never.
func TestOfTwoCopiesThatStartAtOnceOneServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.newServed(t)
	first.end(t, syscall.SIGTERM)
	second := first.copied(t)
	second.recordHere(t)
	both := []*servedSite{first, second}
	for _, s := range both {
		s.daemon, s.log = w.serving(t, s.config)
	}
	serves := func(s *servedSite) bool {
		return strings.Contains(s.log(), "msg=serving") && strings.Contains(s.log(), "presence=true")
	}
	ended := func(s *servedSite) bool {
		return strings.Contains(s.log(), "is served by") || strings.Contains(s.log(), "has served site")
	}
	eventually(t, "one serves and the other one has ended", func() bool {
		return serves(first) && ended(second) || serves(second) && ended(first)
	})
	winner, loser := first, second
	if serves(second) {
		winner, loser = second, first
	}
	if serves(loser) {
		t.Error("both serve")
	}
	winner.end(t, syscall.SIGTERM)
	loser.refused(t, "has served site")
}

// A clone of a virtual machine mostly has the operating system's ID of the original, and not the firmware's.
func TestACloneOfTheMachineIsFoundByItsFirmwaresID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	credentials := t.TempDir()
	w.env["CREDENTIALS_DIRECTORY"] = credentials
	id := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(credentials, "product_uuid"), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id("4c4c4544-0001")
	s := w.newServed(t)
	s.end(t, syscall.SIGTERM)
	s.start(t)
	s.end(t, syscall.SIGTERM)
	id("-") // it can't be read for once
	s.start(t)
	s.end(t, syscall.SIGTERM)
	id("4c4c4544-0002")
	s.refused(t, "another /sys/class/dmi/id/product_uuid", "refdbctl site take-over")
}
