package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

// gerritDir is the site directory of a Gerrit that can't run: files alone.
type gerritDir struct {
	*gitSite
	path, jar string
}

const gerritServerID = "69ec38f0-350e-4d9c-96d4-bc956f2faaac"

// newGerrit adds a site with a Gerrit to a world: All-Projects, All-Users and team/app, with a change. Its daemon does not run yet.
func (w *world) newGerrit(tb testing.TB, name string, more ...string) *gerritDir {
	tb.Helper()
	s := w.newSite(tb, name, mainRef, "refs/changes/01/1/1", "refs/changes/01/1/meta")
	g := &gerritDir{gitSite: s, path: filepath.Join(s.dir, "gerrit")}
	g.configure(tb, append([]string{"[site]", "gerrit = " + g.path}, more...)...)
	for project, number := range map[string]string{"All-Projects": "changes 21", "All-Users": "accounts 1000001"} {
		path := filepath.Join(s.dir, "git", project+".git")
		if out, err := exec.Command("cp", "-a", s.repo.path, path).CombinedOutput(); err != nil {
			tb.Fatalf("%v: %s", err, out)
		}
		for _, ref := range []string{"refs/changes/01/1/1", "refs/changes/01/1/meta"} {
			git(tb, path, "update-ref", "-d", ref)
		}
		sequence, next, _ := strings.Cut(number, " ")
		setSequence(tb, path, "refs/sequences/"+sequence, next)
	}
	git(tb, filepath.Join(s.dir, "git/All-Users.git"), "update-ref", "refs/users/00/1000000", s.repo.commit)
	git(tb, filepath.Join(s.dir, "git/All-Users.git"), "update-ref", "refs/draft-comments/01/1/1000000", s.repo.commit)
	g.write(tb, "etc/gerrit.config", "# kept\n[gerrit]\n\tbasePath = ../git\n\tserverId = "+gerritServerID+"\n\tcanonicalWebUrl = http://eu/\n\tinstallModule = com.example.Other\n")
	g.write(tb, "etc/secure.config", "[auth]\n\tregisterEmailPrivateKey = secret\n")
	fakeWAR(tb, filepath.Join(g.path, "bin/gerrit.war"), "v3.9.4\n")
	g.jar = filepath.Join(s.dir, "globalrefdb-gerrit-3.9.jar")
	fakeJar(tb, g.jar, "3.9", "1")
	return g
}

// setSequence gives a sequence the number that it gives out next.
func setSequence(tb testing.TB, repo, ref, next string) {
	tb.Helper()
	cmd := exec.Command("git", "hash-object", "-w", "--stdin")
	cmd.Dir, cmd.Stdin = repo, strings.NewReader(next)
	out, err := cmd.Output()
	if err != nil {
		tb.Fatal(err)
	}
	git(tb, repo, "-c", "core.hooksPath=/dev/null", "update-ref", ref, strings.TrimSpace(string(out)))
}

// configure writes the site's configuration, with alsoRef for Gerrit unless there is a section guard.
func (g *gerritDir) configure(tb testing.TB, more ...string) {
	tb.Helper()
	text := fmt.Sprintf("[site]\nname = %s\nroot = %s/git\nsocket = %s/s\nstate = %s\n"+patientSite+"%s\n", filepath.Base(g.siteName(tb)), g.dir, g.dir, g.dir, strings.Join(more, "\n"))
	if !strings.Contains(text, "[guard]") {
		text += "[guard]\nalsoRef = refs/changes/*\nalsoRef = refs/draft-comments/*\n"
	}
	if err := os.WriteFile(g.config, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func (g *gerritDir) siteName(tb testing.TB) string {
	tb.Helper()
	return git(tb, g.dir, "config", "-f", g.config, "site.name")
}

// configureSocket lets the site have its daemon at another socket.
func (g *gerritDir) configureSocket(tb testing.TB, path string) {
	tb.Helper()
	git(tb, g.dir, "config", "-f", g.config, "site.socket", path)
}

// deafSocket returns the path of a socket that takes connections, and says nothing.
func (g *gerritDir) deafSocket(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(g.dir, "deaf")
	l, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return path
}

// serves waits until the site's daemon serves.
func (g *gerritDir) serves(tb testing.TB) (s client.Status) {
	tb.Helper()
	eventually(tb, "the daemon serves", func() bool {
		var err error
		s, err = client.Query(tb.Context(), filepath.Join(g.dir, "s"))
		return err == nil && s.OK()
	})
	return s
}

func (g *gerritDir) write(tb testing.TB, name, text string) {
	tb.Helper()
	path := filepath.Join(g.path, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o640)); err != nil {
		tb.Fatal(err)
	}
}

// value returns all values of a key in a file of the directory.
func (g *gerritDir) value(tb testing.TB, file, key string) string {
	tb.Helper()
	out, _ := exec.Command("git", "config", "-f", filepath.Join(g.path, file), "--get-all", key).Output()
	return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", " ")
}

// has checks values of keys in files of the directory: "FILE KEY": value.
func (g *gerritDir) has(tb testing.TB, want map[string]string) {
	tb.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		file, key, _ := strings.Cut(name, " ")
		if got := g.value(tb, file, key); got != want[name] {
			tb.Errorf("%s: %s is %q, want %q", file, key, got, want[name])
		}
	}
}

// files returns the content of all files of the directory but the repositories.
func (g *gerritDir) files(tb testing.TB) map[string]string {
	tb.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(g.path, func(path string, e os.DirEntry, err error) error {
		if err == nil && path == filepath.Join(g.path, "git") {
			return filepath.SkipDir
		}
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, g.path+"/")] = string(text)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// keep returns a function that brings back what the Gerrit's and the site's files are now, but for the repositories.
func (g *gerritDir) keep(tb testing.TB) (restore func(tb testing.TB)) {
	tb.Helper()
	copyAll := func(tb testing.TB, from, to string) {
		tb.Helper()
		if err := os.MkdirAll(to, 0o755); err != nil {
			tb.Fatal(err)
		}
		for _, name := range []string{g.path, g.jar, g.config} {
			name = filepath.Base(name)
			if err := os.RemoveAll(filepath.Join(to, name)); err != nil {
				tb.Fatal(err)
			}
			if out, err := exec.Command("cp", "-a", filepath.Join(from, name), to).CombinedOutput(); err != nil {
				tb.Fatalf("%v: %s", err, out)
			}
		}
	}
	kept := filepath.Join(g.dir, "kept")
	copyAll(tb, g.dir, kept)
	return func(tb testing.TB) { copyAll(tb, kept, g.dir) }
}

// gerrit runs a command about the Gerrit.
func (g *gerritDir) gerrit(tb testing.TB, command string, args ...string) result {
	tb.Helper()
	return g.run(tb, g.gerritArgs(command, args...)...)
}

func (g *gerritDir) gerritArgs(command string, args ...string) []string {
	all := []string{"gerrit", command, g.path, "--config", g.config}
	if command != "disable" {
		all = append(all, "--hook", g.hook)
	}
	if command == "enable" || command == "join" {
		all = append(all, "--jar", g.jar)
	}
	return append(all, args...)
}

// gerritReport is what the commands print as JSON.
type gerritReport struct {
	Changes                                          []struct{ Where, What, Before, After string }
	Guarded, Failed, Differ, Imported, Files, Cloned int
	Complete                                         bool
	DryRun                                           bool `json:"dry_run"`
}

// fakeWAR writes a WAR that has a version.
func fakeWAR(tb testing.TB, path, version string) {
	tb.Helper()
	jar := zipped(tb, map[string]string{"com/google/gerrit/common/Version": version})
	writeZip(tb, path, map[string]string{"META-INF/MANIFEST.MF": "Manifest-Version: 1.0\n", "WEB-INF/lib/a.jar": string(zipped(tb, nil)),
		"WEB-INF/lib/com_google_gerrit_common_libversion.jar": string(jar)})
}

// fakeJar writes a jar that says it is the guard's.
func fakeJar(tb testing.TB, path, series, session string) {
	tb.Helper()
	writeZip(tb, path, map[string]string{"META-INF/MANIFEST.MF": "Manifest-Version: 1.0\r\nGlobalrefdb-Gerrit-Series: " + series + "\r\nGlobalrefdb-Session-Version: " + session + "\r\n"})
}

func writeZip(tb testing.TB, path string, files map[string]string) {
	tb.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, zipped(tb, files), 0o644)); err != nil {
		tb.Fatal(err)
	}
}

func zipped(tb testing.TB, files map[string]string) []byte {
	tb.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(f, files[name])
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// asGerrit makes the test binary a process that has the indexes in the site directory open that it names, until its standard input ends. With
// asGerritOf, a root and a socket, it has a session with the daemon there.
const (
	asGerrit   = "REFDBCTL_TEST_AS_GERRIT"
	asGerritOf = "REFDBCTL_TEST_AS_GERRIT_OF"
)

func gerritMain(path, daemon string) int {
	f, err := os.OpenFile(filepath.Join(path, "index/accounts_0013/write.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	}
	if err == nil && daemon != "" {
		var session net.Conn
		if session, err = beginGerritSession(strings.Fields(daemon)); err == nil {
			defer session.Close()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // as a Gerrit that has started
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer l.Close()
	fmt.Println("started")
	io.Copy(io.Discard, os.Stdin)
	f.Close()
	return 0
}

func beginGerritSession(of []string) (net.Conn, error) {
	conn, err := net.Dial("unix", of[1])
	if err == nil {
		err = wiretest.Write(conn, wire.Begin{Guard: strings.Repeat("ab", 16), Number: 1, Name: "Gerrit " + of[2], Root: of[0], Instance: of[3], Server: gerritServerID})
	}
	if err != nil {
		return nil, err
	}
	m, err := wiretest.ReadWelcome(bufio.NewReader(conn))
	if _, ok := m.(wire.Welcome); !ok && err == nil {
		err = fmt.Errorf("the daemon said %+v", m)
	}
	return conn, err
}

// start starts a process that has the indexes open, with a session as a Gerrit of that version if one is given.
func (g *gerritDir) start(tb testing.TB, version string) (pid int, stop func()) {
	tb.Helper()
	g.write(tb, "index/accounts_0013/write.lock", "")
	cmd := exec.Command("/proc/self/exe", "-jar", "gerrit.war", "daemon")
	cmd.Env = append(os.Environ(), asGerrit+"="+g.path)
	if version != "" {
		cmd.Env = append(cmd.Env, asGerritOf+"="+strings.Join([]string{git(tb, g.dir, "config", "-f", g.config, "site.root"), filepath.Join(g.dir, "s"), version, "gerrit-" + g.siteName(tb)}, " "))
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	stop = func() {
		in.Close()
		cmd.Wait()
	}
	tb.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatalf("it has not started: %q, %v", line, err)
	}
	return cmd.Process.Pid, stop
}
