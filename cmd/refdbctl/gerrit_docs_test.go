package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// guide returns the blocks of code of a language in docs/GERRIT.md, where it says how to install the guard.
func guide(tb testing.TB, language string) (blocks []string) {
	tb.Helper()
	text, err := os.ReadFile("../../docs/GERRIT.md")
	if err != nil {
		tb.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "### Install it\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for _, b := range regexp.MustCompile("(?s)( *)```"+language+"\n(.*?) *```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, strings.ReplaceAll(b[2], "\n"+b[1], "\n"))
	}
	return blocks
}

// guideSite is a machine on which the guide's commands are run as they are written, with other paths.
type guideSite struct {
	name, dir string
	eu        *guideSite
	url       string
}

// paths returns a text of the guide with this machine's paths.
func (s *guideSite) paths(text string) string {
	return strings.NewReplacer("eu:/srv/gerrit", s.eu.dir+"/gerrit", "/srv/gerrit", s.dir+"/gerrit", "/etc/refdb/", s.dir+"/", "/var/lib/refdb/eu", s.dir+"/eu").Replace(text)
}

// programs are those that the commands need of the machine. Gerrit, whose systemctl only notes what it is told, and java are not there.
var programs = map[string]string{
	"sudo":    `[ "$1" != -u ] || shift 2; exec "$@"`,
	"install": `[ "$1 $2 $4" = "-d -o -g" ]; shift 5; exec mkdir -p "$@"`,
	"rsync":   `shift; for to; do :; done; mkdir -p "$to"; exec cp -a "$@"`,
	"systemctl": `echo "$*" >>"$DIR/systemctl"
if [ "$*" = "enable --now refdb-site" ]; then
	setsid "$DIR/bin/program" site serve --config "$DIR/site.config" </dev/null >"$DIR/daemon.log" 2>&1 &
	echo $! >"$DIR/daemon"
	until "$DIR/bin/program" site status --config "$DIR/site.config" >/dev/null 2>&1; do sleep 0.1; done
fi`,
	"refdbctl": `case $1 in
gerrit) exec "$DIR/bin/program" "$@" --config "$DIR/site.config" ;;
*) exec "$DIR/bin/program" "$@" ;;
esac`,
	"java": `[ "$1 $3 $4 $5 $6" = "-jar init --batch --no-auto-start -d" ]
mkdir -p "$7/bin" "$7/index"; cp "$2" "$7/bin/gerrit.war"`,
}

func newGuideSite(t *testing.T, w *world, name string, eu *guideSite) *guideSite {
	t.Helper()
	dir, err := os.MkdirTemp("", "guide")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &guideSite{name: name, dir: dir, eu: eu, url: w.env["REFDB_URL"]}
	if eu == nil {
		s.eu = s
	}
	hook, err := builtHook()
	if err != nil {
		t.Fatal(err)
	}
	ini := guide(t, "ini")
	if len(ini) != 1 {
		t.Fatalf("%d configurations", len(ini))
	}
	files := map[string]string{"bin/refdb-hook": string(hook), "database": s.url + "\n", "owner": s.url + "\n", "site.config": s.paths(ini[0])}
	for name, script := range programs {
		files["bin/"+name] = "#!/bin/sh -e\n" + script + "\n"
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Under the race detector a copy by this process would take seconds.
	if out, err := exec.Command("cp", self, filepath.Join(dir, "bin/program")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, text := range files {
		writeProgram(t, filepath.Join(dir, name), text)
	}
	fakeJar(t, filepath.Join(dir, "bin/globalrefdb-gerrit-3.9.jar"), "3.9", "1")
	for key, value := range map[string]string{"name": name, "socket": dir + "/s", "state": dir} {
		git(t, dir, "config", "-f", filepath.Join(dir, "site.config"), "site."+key, value)
	}
	t.Cleanup(s.stop)
	return s
}

// writeProgram writes a program that can be run at once.
func writeProgram(t *testing.T, path, text string) {
	t.Helper()
	if err := testprogram.Write(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// stop ends the daemon.
func (s *guideSite) stop() {
	if text, err := os.ReadFile(filepath.Join(s.dir, "daemon")); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// run runs a block of the guide, line by line, and returns how many commands these were.
func (s *guideSite) run(t *testing.T, block string) (commands int) {
	t.Helper()
	for line := range strings.Lines(block) {
		commands++
		cmd := exec.Command("bash", "-e", "-c", s.paths(line))
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"), "DIR="+s.dir, asProgram+"=1", "GORACE=atexit_sleep_ms=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			log, _ := os.ReadFile(filepath.Join(s.dir, "daemon.log"))
			t.Fatalf("%s: %s%v\n%s\n%s", s.name, line, err, out, log)
		}
	}
	return commands
}

// The guide's commands make two sites, as they are written, and are at most ten. gerrit/test runs them with Gerrit.
func TestTheGuideMakesTwoSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	blocks := guide(t, "sh")
	if len(blocks) != 3 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	eu := newGuideSite(t, w, "eu", nil)
	first := w.newGerrit(t, "eu") // its files alone
	if err := os.Rename(first.path, filepath.Join(eu.dir, "gerrit")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(first.dir, "git"), filepath.Join(eu.dir, "gerrit/git")); err != nil {
		t.Fatal(err)
	}
	git(t, eu.dir, "config", "-f", filepath.Join(eu.dir, "gerrit/etc/gerrit.config"), "gerrit.basePath", "git")
	for _, dir := range []string{"plugins", "lib", "static"} {
		if err := os.Mkdir(filepath.Join(eu.dir, "gerrit", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	us := newGuideSite(t, w, "us", eu)
	if n := eu.run(t, blocks[0]) + us.run(t, blocks[1]); n > 10 {
		t.Errorf("the guide needs %d commands", n)
	}
	for _, s := range []*guideSite{eu, us} {
		s.run(t, blocks[2]) // its status is 1 if it finds anything
		if got := git(t, s.dir, "config", "-f", filepath.Join(s.dir, "gerrit/etc/gerrit.config"), "gerrit.instanceId"); got != "gerrit-"+s.name {
			t.Errorf("%s has the instance ID %s", s.name, got)
		}
		told, err := os.ReadFile(filepath.Join(s.dir, "systemctl"))
		if err != nil {
			t.Fatal(err)
		}
		// Gerrit is started last, and stopped where it has run.
		want := map[string]string{"eu": "enable --now refdb-site\nstop gerrit\nstart gerrit\n", "us": "enable --now refdb-site\nstart gerrit\n"}[s.name]
		if string(told) != want {
			t.Errorf("%s: systemctl was told\n%s", s.name, told)
		}
	}
	if got := git(t, filepath.Join(us.dir, "gerrit/git/team/app.git"), "rev-parse", "refs/changes/01/1/1"); got != first.repo.commit {
		t.Errorf("us has the patch set %s", got)
	}
}

// Every command that docs/GERRIT.md names is one.
func TestTheCommandsOfTheGerritDocumentationAreUnderstood(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/GERRIT.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)(?:`|^sudo )refdbctl ([^`\n]*)").FindAllSubmatch(text, -1)
	if len(found) < 10 {
		t.Fatalf("only %d commands were found", len(found))
	}
	for _, f := range found {
		words := strings.Fields(string(f[1]))
		a := newApp(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }})
		cmd, rest, err := a.rootCommand().Find(words)
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err != nil || cli.IsGroup(cmd) {
			t.Errorf("refdbctl %s: %v", f[1], err)
		}
	}
}

// What the jar says of itself is what it has.
func TestTheJarSaysWhichSessionsItHas(t *testing.T) {
	t.Parallel()
	pom, err := os.ReadFile("../../gerrit/pom.xml")
	if err != nil {
		t.Fatal(err)
	}
	guard, err := os.ReadFile("../../gerrit/src/main/java/com/github/globalrefdb/gerrit/session/GuardMessages.java")
	if err != nil {
		t.Fatal(err)
	}
	version := strconv.Itoa(wire.SessionVersion)
	for text, in := range map[string][]byte{
		"<session.version>" + version + "</session.version>":                            pom,
		"<Globalrefdb-Session-Version>${session.version}</Globalrefdb-Session-Version>": pom,
		"<Globalrefdb-Gerrit-Series>${gerrit.series}</Globalrefdb-Gerrit-Series>":       pom,
		fmt.Sprintf("%q", strings.TrimSpace(wire.SessionMagic)+" "+version):             guard,
	} {
		if !strings.Contains(string(in), text) {
			t.Errorf("there is no %s", text)
		}
	}
}
