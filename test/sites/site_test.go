//go:build linux

package sites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// project is the repository of most tests.
const project = "team/app"

// A cluster is two sites that share a database.
type cluster struct {
	testing.TB
	g      *git
	h      *history
	db     *refdb.DB // the test's own connection to the database
	eu, us *server
}

// A server is a site: its repositories and its daemon.
type server struct {
	c      *cluster
	life   testing.TB // the daemon's: that of the whole cluster
	name   string
	dir    string
	bin    string // directory of the programs
	root   string // of the repositories
	db     string // the URL of the database, as this site sees it
	file   string // that has the URL; "": the configuration has it
	config string
	limits string // lines of the configuration
	// wrapper starts the daemon, if it is not empty.
	wrapper []string
	daemon  *child
}

// A design says what a cluster is made of. The zero value is usable.
type design struct {
	storage  storage
	h        *history                             // default: a small one
	database func(testing.TB) database            // default: onSQLite
	url      func(site string, d database) string // the site's way to the database
	inFile   bool                                 // the URL is in a file, which the configuration names
	projects []string                             // default: project
	bin      string                               // of the sites' programs; default: of this source
	limits   string                               // of the sites' configuration; default: patientLimits
	extra    string                               // more lines of it
}

const (
	// patientLimits are reached only by what hangs.
	patientLimits = "\ttimeout = 5m\n\tlockWait = 5m\n\tstopTimeout = 5m\n"
	// usualLimits are those of a site whose configuration names none.
	usualLimits = "\ttimeout = 4s\n\tlockWait = 2s\n\tdatabaseWait = 30s\n\tstopTimeout = 30s\n"
)

// A database is one of dbtest's, or on a server that may be killed.
type database interface {
	URL() string
	Open(testing.TB) refdb.Driver
}

func onSQLite(t testing.TB) database   { return dbtest.SQLite(t) }
func onPostgres(t testing.TB) database { return dbtest.Postgres(t) }

// newCluster starts two sites with the same, empty repositories: eu and us.
func newCluster(t testing.TB, g *git, d design) *cluster {
	t.Helper()
	if d.storage == (storage{}) {
		d.storage = files
	}
	if d.h == nil {
		d.h = newHistory(t, g, d.storage.objects, 0, 0)
	}
	if d.database == nil {
		d.database = onSQLite
	}
	if d.url == nil {
		d.url = func(_ string, d database) string { return d.URL() }
	}
	if d.projects == nil {
		d.projects = []string{project}
	}
	if d.limits == "" {
		d.limits = patientLimits
	}
	shared := d.database(t)
	db, err := refdb.New(shared.Open(t), refdb.Options{Site: "bystander"})
	c := &cluster{TB: t, g: g, h: d.h, db: must(t, db, err)}
	t.Cleanup(func() { db.Close() })
	for _, s := range []struct {
		name string
		site **server
	}{{"eu", &c.eu}, {"us", &c.us}} {
		*s.site = c.newServer(s.name, d.url(s.name, shared), d)
	}
	return c
}

func (c *cluster) newServer(name, url string, d design) *server {
	c.Helper()
	dir := shortDir(c)
	if d.bin == "" {
		bin, err := programs()
		d.bin = must(c.TB, bin, err)
	}
	if !strings.Contains(d.extra, "store = ") {
		d.extra = "\tstore = none\n" + d.extra
	}
	s := &server{c: c, life: c.TB, name: name, dir: dir, bin: d.bin, root: filepath.Join(dir, "git"), db: url, config: filepath.Join(dir, "site.config"), limits: d.limits}
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		c.Fatal(err)
	}
	for _, p := range d.projects {
		repo := s.repo(p)
		if err := os.MkdirAll(filepath.Dir(repo), 0o755); err != nil {
			c.Fatal(err)
		}
		c.g.initBare(c, repo, d.storage)
		c.g.run(c, repo, "config", "http.receivepack", "true")
	}
	if d.inFile {
		s.file = filepath.Join(dir, "database")
		s.writeURL(url)
	}
	s.configure(d.extra)
	s.start()
	for _, p := range d.projects {
		how := "--new"
		if _, known, err := c.db.Projects().Get(c.Context(), p); err != nil {
			c.Fatal(err)
		} else if known {
			how = "--copy"
		}
		s.must("site", "enable", how, s.repo(p))
	}
	return s
}

// configure writes the site's configuration, with those lines at its end.
func (s *server) configure(extra string) {
	s.c.Helper()
	database := fmt.Sprintf("database = %q", s.db)
	if s.file != "" {
		database = "databaseFile = " + s.file
	}
	text := fmt.Sprintf("[site]\n\tname = %s\n\t%s\n\tsocket = %s\n\tstate = %s\n\troot = %s\n%s%s\n",
		s.name, database, s.socket(), filepath.Join(s.dir, "state"), s.root, s.limits, extra)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		s.c.Fatal(err)
	}
}

// writeURL writes the file with the URL of the database.
func (s *server) writeURL(url string) {
	s.c.Helper()
	if err := os.WriteFile(s.file, []byte(url+"\n"), 0o600); err != nil {
		s.c.Fatal(err)
	}
}

// reconfigure lets the daemon that runs read its configuration again, with those lines at its end.
func (s *server) reconfigure(extra string) {
	s.c.Helper()
	const done = "configuration reloaded"
	before := strings.Count(s.daemon.out.String(), done)
	s.configure(extra)
	signal(s.c, s.daemon.Process.Pid, syscall.SIGHUP)
	eventually(s.c, "the new configuration of "+s.name, func() error {
		if strings.Count(s.daemon.out.String(), done) == before {
			return errPending
		}
		return nil
	})
}

// impatient returns s for pushes whose hooks wait that long, where they wait in vain.
func (s *server) impatient(limit time.Duration) *server {
	c, h := *s.c, *s.c.h
	h.g = h.g.within(limit)
	c.h = &h
	at := *s
	at.c = &c
	return &at
}

func (s *server) repo(project string) string { return filepath.Join(s.root, project+".git") }
func (s *server) socket() string             { return filepath.Join(s.dir, "sock") }

// command returns a refdbctl command at this site.
func (s *server) command(args ...string) *exec.Cmd {
	s.c.Helper()
	program := filepath.Join(s.bin, "refdbctl")
	if !testing.Short() && len(args) > 1 && (args[1] == "serve" || args[1] == "http") {
		program += "-race"
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	// By default the race detector sleeps for a second at the end of each process.
	cmd.Env = append([]string{"REFDB_URL=" + s.db, "REFDB_SITE=" + s.name, "REFDB_SITE_CONFIG=" + s.config, "GORACE=atexit_sleep_ms=0"}, s.c.g.env...)
	if len(args) > 0 && args[0] == "site" {
		if s.file != "" {
			cmd.Env[0] = "REFDB_URL="
		}
		cmd.Args = append(cmd.Args, "--config", s.config)
	}
	return cmd
}

// run runs refdbctl at this site.
func (s *server) run(args ...string) (string, error) {
	s.c.Helper()
	cmd := s.command(args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("refdbctl %s at %s: %w: %s%s", strings.Join(args, " "), s.name, err, complaint.Bytes(), out.Bytes())
	}
	return out.String(), nil
}

// losesRepository removes a repository under the daemon, as a broken disk does: at once, so that nothing finds half of it.
func (s *server) losesRepository(project string) {
	s.c.Helper()
	gone := s.repo(project) + ".gone"
	err := os.Rename(s.repo(project), gone)
	if err != nil {
		s.c.Fatal(err)
	}
	eventually(s.c, "the end of the repository", func() error { return os.RemoveAll(gone) }) // a git that runs there may make a file again
}

// must is run for a command that must succeed.
func (s *server) must(args ...string) string {
	s.c.Helper()
	out, err := s.run(args...)
	return must(s.c, out, err)
}

// start starts the daemon and waits until it is ready. A process that an earlier daemon was about to start may hold on to
// the daemon's lock for a moment after that daemon was killed.
func (s *server) start() {
	s.c.Helper()
	err := s.tryStart()
	for deadline := time.Now().Add(patience); err != nil && strings.Contains(err.Error(), "a site daemon runs already") && time.Now().Before(deadline); {
		err = s.tryStart()
	}
	if err != nil {
		s.c.Fatal(err)
	}
}

// tryStart returns an error if the daemon ends instead of getting ready.
func (s *server) tryStart() error {
	s.c.Helper()
	path := filepath.Join(s.dir, "notify")
	os.Remove(path)
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		s.c.Fatal(err)
	}
	defer notify.Close()
	cmd := s.command("site", "serve", "--log-level", "debug")
	if len(s.wrapper) > 0 {
		wrapped := exec.Command(s.wrapper[0], append(s.wrapper[1:], append([]string{cmd.Path}, cmd.Args[1:]...)...)...)
		wrapped.Dir, wrapped.Env = cmd.Dir, cmd.Env
		cmd = wrapped
	}
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+path)
	daemon := launch(s.life, cmd)
	s.daemon = daemon
	s.life.Cleanup(func() {
		if strings.Contains(daemon.out.String(), "DATA RACE") {
			s.life.Errorf("the daemon of %s has a data race", s.name)
		}
		if s.life.Failed() {
			s.life.Logf("the daemon %d of %s says\n%s", daemon.Process.Pid, s.name, daemon.out)
		}
	})
	for deadline := time.Now().Add(patience); ; {
		message := make([]byte, 4096)
		notify.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := notify.Read(message); err == nil && strings.Contains(string(message[:n]), "READY=1") {
			return nil
		}
		select {
		case <-s.daemon.ended:
			return fmt.Errorf("the daemon of %s ended: %s: %s", s.name, s.daemon.ProcessState, s.daemon.out)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the daemon of %s is not ready: %s", s.name, s.daemon.out)
		}
	}
}

// stop asks the daemon to end, and waits for its end.
func (s *server) stop() {
	s.c.Helper()
	signal(s.c, s.daemon.Process.Pid, syscall.SIGTERM)
	if !s.daemon.wait(s.c) {
		s.c.Fatalf("the daemon of %s: %s: %s", s.name, s.daemon.ProcessState, s.daemon.out)
	}
}

// kill kills the daemon.
func (s *server) kill() { s.daemon.kill() }

// status asks the daemon for its status.
func (s *server) status() (client.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.Query(ctx, s.socket())
}

// git runs git in the site's repository of the project.
func (s *server) git(args ...string) string {
	s.c.Helper()
	return s.c.g.run(s.c, s.repo(project), args...)
}

// push pushes to the site's repository of the project, over the file system.
func (s *server) push(args ...string) push {
	s.c.Helper()
	return s.c.h.push(s.c, s.repo(project), args...)
}

// startPush starts a push, whose result is what the function returns.
func (s *server) startPush(args ...string) func() push {
	s.c.Helper()
	p, told := s.c.h.startPush(s.c, s.repo(project), args...)
	return func() push {
		s.c.Helper()
		return told(p)
	}
}

// pushed pushes, which must succeed.
func (s *server) pushed(args ...string) {
	s.c.Helper()
	if p := s.push(args...); !p.ok {
		s.c.Fatalf("the push %q to %s was refused: %+v", args, s.name, p)
	}
}

// refusedInVain is refused for a push that waits for something, with a limit. On a busy machine it may be reached
// before the daemon says what is waited for.
func (s *server) refusedInVain(text string, args ...string) {
	s.c.Helper()
	s = s.impatient(time.Second)
	eventually(s.c, "a refusal that says "+text, func() error {
		p := s.push(args...)
		if p.ok || len(p.accepted()) > 0 {
			s.c.Fatalf("the push %q to %s should be refused with %q: %+v", args, s.name, text, p)
		}
		if !strings.Contains(p.said, text) {
			return errors.New(p.said)
		}
		return nil
	})
}

// refused pushes, which must fail and tell the client something that contains text.
func (s *server) refused(text string, args ...string) {
	s.c.Helper()
	if p := s.push(args...); p.ok || len(p.accepted()) > 0 || !strings.Contains(p.said, text) {
		s.c.Errorf("the push %q to %s should be refused with %q: %+v", args, s.name, text, p)
	}
}

// refs returns the refs of a site, except for its private ones.
func (s *server) refs(project string) map[string]string {
	s.c.Helper()
	return s.c.g.refs(s.c, s.repo(project))
}

// sync catches up with the other site.
func (s *server) sync() {
	s.c.Helper()
	s.syncFrom(s.other(), project)
}

// trySync is sync while pushes go on: status 1 says that the site could not catch up
// with something yet.
func (s *server) trySync() {
	s.c.Helper()
	_, err := s.run(syncArgs(s.other(), s, project)...)
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		s.c.Error(err)
	}
}

func (s *server) other() *server {
	if s == s.c.eu {
		return s.c.us
	}
	return s.c.eu
}

func syncArgs(from, to *server, project string) []string {
	return []string{"site", "sync", "--peer", from.name, "--from", from.repo(project), to.repo(project)}
}

func (s *server) syncFrom(other *server, project string) {
	s.c.Helper()
	s.must(syncArgs(other, s, project)...)
}

// global returns the refs in the database.
func (c *cluster) global(project string) map[string]string {
	c.Helper()
	values := make(map[string]string)
	for r, err := range c.db.Refs(c.Context(), project, "") {
		if err != nil {
			c.Fatal(err)
		}
		if r.Name != "HEAD" { // git does not list it with the others
			values[r.Name] = string(r.Value)
		}
	}
	return values
}

// settled waits until nothing is pending.
func (c *cluster) settled() {
	c.Helper()
	eventually(c, "the end of all intents", func() error {
		for i, err := range c.db.Intents().All(c.Context(), driver.IntentFilter{}) {
			if err != nil {
				return err
			}
			return fmt.Errorf("%s of %s: %s to %s by %s (%s), and maybe others", i.Ref, i.Project, i.Old, i.New, i.Owner, i.Agent)
		}
		return nil
	})
}

// agreed fails the test unless both sites and the database hold the same, and nothing is pending.
func (c *cluster) agreed() {
	c.Helper()
	c.settled()
	want := c.global(project)
	sameRefs(c, "eu", c.eu.refs(project), want)
	sameRefs(c, "us", c.us.refs(project), want)
}

// caughtUp syncs both sites and then fails the test unless they agree.
func (c *cluster) caughtUp() {
	c.Helper()
	c.settled()
	c.eu.sync()
	c.us.sync()
	c.agreed()
}

// errPending says that something has not happened yet.
var errPending = errors.New("not yet")

// background is a context for what happens after the test's own context has ended.
func (c *cluster) background() context.Context { return context.WithoutCancel(c.Context()) }
