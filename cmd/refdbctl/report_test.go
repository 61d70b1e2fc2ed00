package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const secret = "s3cr3t-pa55"

func TestBadAddressesAreOneLineThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, url string
		code      int
		says      string
	}{
		{"none", "", exit.Misuse, "--db URL or set REFDB_URL, to sqlite:FILE"},
		{"no scheme", secret, exit.Misuse, "no scheme: give sqlite:FILE"},
		{"unknown scheme", "mysql://u:" + secret + "@h/d", exit.Misuse, `unknown database scheme "mysql": give sqlite:FILE`},
		{"connection string", "host=h password=" + secret, exit.Misuse, "sqlite:FILE"},
		{"unreachable server", "postgres://u:" + secret + "@127.0.0.1:1/d", exit.Failed, "refused"},
		{"malformed address", "postgres://u:" + secret + "%zz@h:port/d", exit.Misuse, "postgres://USER"},
		{"unescaped password", "postgres://u:pa/" + secret + "@127.0.0.1:1/d", exit.Misuse, "postgres://USER"},
		{"wrong password", denyingServer(t), exit.Failed, "password authentication failed"},
		{"malformed Spanner name", "spanner://projects/p", exit.Misuse, "databases"},
		{"no schema", dbtest.SQLiteEmpty(t), exit.Failed, "refdbctl migrate up"},
		{"a directory as file", "sqlite:" + dir, exit.Failed, ""},
		{"a file in no directory", "sqlite:" + dir + "/nowhere/x.db", exit.Failed, ""},
		{"a file below a file", "sqlite:" + garbage + "/x.db", exit.Failed, ""},
		{"a file that is no database", "sqlite:" + garbage, exit.Failed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{env: map[string]string{"REFDB_URL": c.url}}
			t.Parallel()
			r := w.run(t, "locks", "list")
			r.is(t, c.code, c.says)
			r.isOneLine(t)
			doctor := w.run(t, "doctor")
			if doctor.code != c.code {
				t.Errorf("doctor: status %d, want %d", doctor.code, c.code)
			}
			if up := w.run(t, "migrate", "version"); up.code != exit.OK {
				up.isOneLine(t)
				doctor.err += up.err
			}
			if all := r.err + r.out + doctor.err + doctor.out; strings.Contains(all, secret) {
				t.Errorf("the password is printed: %s", all)
			}
		})
	}
}

// denyingServer speaks PostgreSQL's protocol so far as to refuse a password.
func denyingServer(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			deny(c)
		}
	}()
	tb.Cleanup(func() {
		l.Close()
		<-done
	})
	return "postgres://u:" + secret + "@" + l.Addr().String() + "/d?sslmode=disable&require_auth=password"
}

func deny(c net.Conn) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	b.Send(&pgproto3.AuthenticationCleartextPassword{})
	if b.Flush() != nil || b.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	if _, err := b.Receive(); err != nil {
		return
	}
	b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: `password authentication failed for user "u"`})
	b.Flush()
}

func TestASchemaThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for says, version := range map[string]int{"older": 1, "newer": 99} {
		w := newWorld(t)
		w.Exec(t, `UPDATE refdb_schema SET version = ?, oldest = ?`, version, version)
		r := w.run(t, "refs", "list", "p")
		r.is(t, exit.Failed, says)
		r.isOneLine(t)
		doctor := w.run(t, "doctor")
		doctor.is(t, exit.Failed, "1 check failed")
		if !strings.Contains(doctor.out, says) {
			t.Errorf("doctor does not tell: %s", doctor.out)
		}
	}
}

func TestBadArgumentsAreUsageErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nowhere := t.TempDir()
	for _, c := range []struct {
		args string
		says string
	}{
		{"nonsense", "unknown command"},
		{"lock", `after "--"`},
		{"locks lst", "did you mean list?"},
		{"doctor extra", `unexpected argument "extra" (see refdbctl doctor --help)`},
		{"doctor --nonsense", "unknown flag"},
		{"doctor -o yaml", "table, json, csv"},
		{"doctor --log-level=loud", "log-level"},
		{"doctor --timeout=soon", "timeout"},
		{"doctor --site=a/b", "site"},
		{"help nonsense", `unknown command "nonsense" for "refdbctl"`},
		{"help refs gte", `unknown command "gte" for "refdbctl refs", did you mean get?`},
		{"refs get p", "REF is missing (see refdbctl refs get --help)"},
		{"refs get", "PROJECT and REF are missing"},
		{"refs get p " + mainRef + " x", `unexpected argument "x"`},
		{"refs put p", "REF and NEW are missing"},
		{"refs put", "PROJECT, REF and NEW are missing"},
		{"refs rollback", "PROJECT is missing"},
		{"refs log", "PROJECT is missing"},
		{"refs log p r x", `unexpected argument "x"`},
		{"refs delete p r x --force", `unexpected argument "x"`},
		{"sites retire", "NAME is missing"},
		{"site store list", "PROJECT is missing"},
		{"site check --all p", "or give --all"},
		{"refs get p main", "not a full name such as refs/heads/main"},
		{"refs get p refs/heads/a..b", `holds ".."`},
		{"refs get RECLAIM_p " + mainRef, "reserved"},
		{"refs list RECLAIM_p", "reserved"},
		{"refs put p " + mainRef + " abcdef --force", "full object ID"},
		{"refs put p " + mainRef + " " + id("0") + " --force", "refs delete"},
		{"refs put p " + mainRef + " ref:main --force", "full object ID"},
		{"refs put p " + mainRef + " " + id("a"), "--old OLD"},
		{"refs put p " + mainRef + " " + id("a") + " --old=x", "full object ID"},
		{"refs put p " + mainRef + " " + id("a") + " --old=none --force", "old force"},
		{"refs put p " + mainRef + " " + id("a") + " --old=none --token=0", "--token 0"},
		{"refs put p " + mainRef + " " + id("a") + " --old=none --token=x", "token"},
		{"refs put p " + mainRef + " " + id("a") + " --old=none --token=5", "--owner NAME, or set REFDB_OWNER"},
		{"refs delete p " + mainRef + " --old=" + id("a") + " --token=5", "--owner NAME, or set REFDB_OWNER"},
		{"refs put p " + mainRef + " " + id("a") + " --old=none --owner=here/1", "--owner needs the --token"},
		{"refs put p " + mainRef + " " + strings.Repeat("x", 5000) + " --string --force", "at most 4096"},
		{"refs delete p " + mainRef, "--old OLD"},
		{"refs delete p " + mainRef + " --old=none", "can't be deleted"},
		{"refs import p", "repo"},
		{"refs verify p", "repo"},
		{"refs purge-tombstones p", "older-than"},
		{"refs purge-tombstones p --older-than=-1h", "must be positive"},
		{"locks purge", "specify locks"},
		{"locks purge p", "both PROJECT and REF"},
		{"locks purge --stale", "--yes"},
		{"locks purge --stale --yes --dry-run", "yes dry-run"},
		{"locks purge --older-than=-5m --yes", "must be positive"},
		{"locks purge --older-than=0s --yes", "must be positive"},
		{"locks purge --older-than=2020-01-01T00:00:00Z --yes", "not a point in time"},
		{"locks purge p " + mainRef + " --project=q --yes", "leave out --project"},
		{"locks list --ref=main", "full name"},
		{"locks list --watch=0s", "must be positive"},
		{"locks show p main", "full name"},
		{"lock p -- true", "at least one REF"},
		{"lock p " + mainRef + " true", `after "--"`},
		{"lock p " + mainRef + " --", "COMMAND"},
		{"lock p " + mainRef + " --wait=0s -- true", "--try does not wait"},
		{"lock p " + mainRef + " --wait=1s --try -- true", "wait try"},
		{"lock p " + mainRef + " --stale-after=3s --heartbeat=2s -- true", "at most a third"},
		{"lock p " + mainRef + " --stale-after=10ms -- true", "at least"},
		{"lock p " + mainRef + " --stale-after=-1s -- true", "must be positive"},
		{"lock p " + mainRef + " --heartbeat=-1s -- true", "must be positive"},
		{"lock p " + mainRef + " --stale-after=30s --kill-after=10s -- true", "at most a fifth"},
		{"lock p " + mainRef + " " + mainRef + " -- true", "twice"},
		{"migrate down", "--yes"},
		{"migrate down --steps=0 --yes", "at least 1"},
		{"migrate down --steps=1 --all --yes", "steps all"},
		{"migrate force x --yes", "version number"},
		{"project remove p", "--yes"},
		{"project remove RECLAIM_x --yes", "reserved"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := w.run(t, strings.Fields(c.args)...)
			r.is(t, exit.Misuse, c.says)
			r.isOneLine(t)
			if r.out != "" {
				t.Errorf("stdout: %s", r.out)
			}
		})
	}
	for _, verb := range []string{"import", "verify"} {
		r := w.run(t, "refs", verb, "p", "--repo", nowhere)
		r.is(t, exit.Failed, "not a Git repository")
		r.isOneLine(t)
	}
}

func TestAFullDiskUnderTheOutput(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("this test needs /dev/full: %v", err)
	}
	defer full.Close()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	for _, args := range []string{"refs list p", "refs get p " + mainRef, "refs list p -o json", "refs list p -o csv", "doctor", "migrate version"} {
		cmd := w.program(t, strings.Fields(args)...)
		var messages strings.Builder
		cmd.Stdout, cmd.Stderr = full, &messages
		cmd.Run()
		r := result{code: cmd.ProcessState.ExitCode(), err: messages.String()}
		r.is(t, exit.Failed, "no space left")
		r.isOneLine(t)
	}
}

func TestHelpIsCompleteAndHoldsNoSecret(t *testing.T) {
	t.Parallel()
	w := &world{env: map[string]string{"REFDB_URL": "postgres://u:" + secret + "@h/d"}}
	root := newApp(cli.Streams{Env: func(string) string { return "" }}).rootCommand()
	for _, cmd := range root.Commands() {
		for _, c := range append(cmd.Commands(), cmd) {
			if c.Short == "" || c.Example == "" {
				t.Errorf("%s lacks a description or an example", c.CommandPath())
			}
			r := w.run(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
			if r.code != exit.OK || !strings.Contains(r.out, c.Short) && !strings.Contains(r.out, c.Long) || strings.Contains(r.out, secret) {
				t.Errorf("%s --help: %+v", c.CommandPath(), r)
			}
			for line := range strings.Lines(c.Long) {
				if len(line) > 130 {
					t.Errorf("%s: a line of %d characters: %s", c.CommandPath(), len(line), line)
				}
			}
		}
	}
	if r := w.run(t); r.code != exit.OK || !strings.Contains(r.out, "Exit status") {
		t.Errorf("refdbctl alone: %+v", r)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := w.run(t, "completion", shell); r.code != exit.OK || !strings.Contains(r.out, "refdbctl") {
			t.Errorf("completion %s: status %d: %s", shell, r.code, r.err)
		}
	}
}
