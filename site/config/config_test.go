package config_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
)

func load(tb testing.TB, text string) (*config.Config, error) {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "site.config")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return config.Load(tb.Context(), path)
}

func TestConfigDefaultsAndValues(t *testing.T) {
	t.Parallel()
	c, err := load(t, "[site]\nname = eu-1\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Site != "eu-1" || c.Database != "" || c.Socket != "/run/refdb/site.sock" || c.State != "/var/lib/refdb" || c.Root != "" ||
		c.Timeout != 4*time.Second || c.LockWait != 2*time.Second || c.DatabaseWait != 30*time.Second || c.StopTimeout != 30*time.Second || c.NewProjectStore != config.StoreAll {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{"all": config.StoreAll, "transit": config.StoreTransit, "none": ""} {
		if c, err := load(t, "[site]\nname = eu-1\nstore = "+text+"\n"); err != nil || c.NewProjectStore != want {
			t.Errorf("store = %s: %+v, %v", text, c, err)
		}
	}
	root := t.TempDir()
	c, err = load(t, "[site]\nname = \"größe 1\"\n") // spaces are not for refs
	if err == nil {
		t.Errorf("a name with a space: %+v", c)
	}
	c, err = load(t, "[site]\nname = eu-1\ndatabase = \"postgres://refdb@db/refdb?a=b#c\"\nsocket = /s\nstate = /x/../st\nroot = "+root+
		"\ngerrit = /srv/gerrit/\nTimeOut = 1s\nlockWait = 500ms\ndatabaseWait = 2m\nstopTimeout = 1m\npusherEnv = WHO\npusherEnv = SSH_WHO\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Database != "postgres://refdb@db/refdb?a=b#c" || c.Socket != "/s" || c.State != "/st" || c.Root != root || c.Gerrit != "/srv/gerrit" ||
		c.Timeout != time.Second || c.LockWait != 500*time.Millisecond || c.DatabaseWait != 2*time.Minute || c.StopTimeout != time.Minute || strings.Join(c.PusherEnv, " ") != "WHO SSH_WHO" {
		t.Errorf("%+v", c)
	}
}

func TestConfigErrorsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, says string }{
		{"no name", "[site]\nroot = /", "site.name is missing"},
		{"a name with a slash", "[site]\nname = a/b", `site.name: "a/b" can't be a site's name`},
		{"an empty name", "[site]\nname =", "site.name"},
		{"a name that is no ref's", "[site]\nname = a..b", "site.name"},
		{"an unknown key", "[site]\nname = x\nlock = 1s", "site.lock: there is no such key in this version"},
		{"an unknown section", "[sites]\nname = x", "sites.name: there is no such key in this version"},
		{"an unknown key of a repository", "[repository \"a.b\"]\nroot = /x", "repository.a.b.root: there is no such key in this version"},
		{"a syntax error", "[site\nname = x", "bad config line 1"},
		{"a relative socket", "[site]\nsocket = run/s", `site.socket: "run/s" is not an absolute path`},
		{"a relative Gerrit", "[site]\ngerrit = gerrit", `site.gerrit: "gerrit" is not an absolute path`},
		{"a relative root", "[site]\nroot = git", "site.root"},
		{"a root that is not there", "[site]\nname = x\nroot = /nowhere/at/all", "site.root"},
		{"a mirror without a name", "[site]\nname = x\n[pushMirror]\nurl = y", "can't be a mirror's name"},
		{"a mirror with a path as its name", "[site]\nname = x\n[pushMirror \"a/b\"]\nurl = y", "can't be a mirror's name"},
		{"a mirror without a place", "[site]\nname = x\n[pushMirror \"m\"]\nproject = y", "pushMirror.m.url is missing"},
		{"a mirror with an option as its place", "[site]\nname = x\n[pushMirror \"m\"]\nurl = --x", "is not the URL of a repository"},
		{"a mirror with one place for all projects", "[site]\nname = x\n[pushMirror \"m\"]\nurl = y", "pushMirror.m.url: several projects would have one repository"},
		{"a mirror with a token", "[site]\nname = x\n[pushMirror \"m\"]\nurl = https://token@host/{project}", "the URL has a user or a password"},
		{"a mirror with an unknown key", "[site]\nname = x\n[pushMirror \"m\"]\nproject = y\nbranch = z", "pushmirror.m.branch: there is no such key"},
		{"removed repositories without a root", "[site]\nname = x\nfollowRemoval = /srv", "site.followRemoval is for the repositories below site.root"},
		{"removed repositories at the root", "[site]\nname = x\nroot = /usr\nfollowRemoval = /usr", "/usr and site.root are within one another"},
		{"removed repositories above the root", "[site]\nname = x\nroot = /usr/lib\nfollowRemoval = /usr", "/usr and site.root are within one another"},
		{"removed repositories below the root", "[site]\nname = x\nroot = /usr\nfollowRemoval = /usr/lib", "/usr/lib and site.root are within one another"},
		{"a duration without a unit", "[site]\ntimeout = 4", `site.timeout: "4" is not a duration`},
		{"a time-out of an hour", "[site]\ntimeout = 1h", "site.timeout: 1h must be more than 0 and less than 1h0m0s"},
		{"a negative time-out", "[site]\nlockWait = -1s", "site.lockwait: -1s must be more than 0"},
		{"a store of some objects", "[site]\nstore = some", `site.store: "some" is not one of: all, transit, none`},
		{"maintenance every hour", "[site]\nmaintain = hourly", `site.maintain: "hourly" is not one of: daily, off`},
		{"a durability that is none", "[site]\ndurability = tape", `site.durability: "tape" is not one of: database, local`},
		{"an answer that is neither yes nor no", "[site]\nautoClone = perhaps", `site.autoclone: "perhaps" is not one of: true, false`},
		{"a mode that is none", "[guard]\nmode = off", `guard.mode: "off" is not one of: enforce, log`},
		{"a limit in words", "[site]\npackLimit = much", `site.packlimit: "much" is not a number of bytes: give one such as 256m or 1g`},
		{"a limit of nothing", "[site]\npackLimit = 0", `site.packlimit: "0" is not a number of bytes`},
		{"a limit in two units", "[site]\npackLimit = 1kg", `site.packlimit: "1kg" is not a number of bytes`},
		{"a limit beyond 64 bits", "[site]\npackLimit = 9223372036854775808", `site.packlimit: "9223372036854775808" is too large: give less than 8589934592g`},
		{"a limit beyond 64 bits by its unit", "[site]\npackLimit = 8589934592g", `site.packlimit: "8589934592g" is too large: give less than 8589934592g`},
		{"an empty variable", "[site]\npusherEnv =", `site.pusherenv: "" is not the name of an environment variable`},
		{"a variable with its value", "[site]\npusherEnv = WHO=x", `site.pusherenv: "WHO=x" is not the name of an environment variable`},
		{"metrics at no port", "[site]\nmetrics = localhost", `site.metrics: "localhost" is not an address: give a host and a port, such as 127.0.0.1:9464`},
		{"metrics at a port of no number", "[site]\nmetrics = 127.0.0.1:http", `site.metrics: "127.0.0.1:http" is not an address`},
		{"metrics at port 0", "[site]\nmetrics = 127.0.0.1:0", `site.metrics: "127.0.0.1:0" is not an address`},
		{"metrics at every address, unsaid", "[site]\nmetrics = :9464", `site.metrics: ":9464" has no host: give 127.0.0.1:9464, or 0.0.0.0:9464`},
		{"metrics at a relative path", "[site]\nmetrics = run/m", `site.metrics: "run/m" is not an address`},
		{"a broken regex", "[guard]\nref = ^refs/(", "guard.ref: \"^refs/(\" is not a pattern"},
		{"an empty pattern", "[guard]\nproject =", "guard.project"},
		{"a relative repository", "[repository \"a\"]\npath = x", "repository.a.path"},
		{"a repository without a name", "[repository]\npath = /x", "repository.path"},
		{"a project that can't be one", "[repository \"RECLAIM_x\"]\npath = /x", "reserved"},
		{"two paths of a project", "[repository \"a\"]\npath = /x\npath = /y", "the project has two paths"},
		{"two projects of a path", "[repository \"a\"]\npath = /x\n[repository \"b\"]\npath = /x/", "/x is the path of \"a\" already"},
		{"a key without a value", "[site]\nname", "site.name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := load(t, c.text); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want something with %q", err, c.says)
			}
		})
	}
	if _, err := config.Load(t.Context(), "/nowhere/site.config"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestALimitOfBytesMayHave64Bits(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]int64{"4294967296": 1 << 32, "4g": 4 << 30, "8589934591g": 8589934591 << 30, "256M": 256 << 20, "7k": 7 << 10, "9223372036854775807": math.MaxInt64} {
		c, err := load(t, "[site]\nname = x\npackLimit = "+said)
		if err != nil || c.PackLimit != want {
			t.Errorf("%s: %v, want %d", said, err, want)
		}
	}
}

// A file is changed as a whole, or not at all; it stays its owner's.
func TestAFileIsRewritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "site.config")
	if err := os.WriteFile(path, []byte("# kept\n[site]\n\tname = x\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(path, 12, 13); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	has := func(want string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
		after, err := os.Stat(path)
		if err != nil || after.Mode() != before.Mode() || after.Sys().(*syscall.Stat_t).Uid != before.Sys().(*syscall.Stat_t).Uid || after.Sys().(*syscall.Stat_t).Gid != before.Sys().(*syscall.Stat_t).Gid {
			t.Errorf("%+v, %v, was %+v", after, err, before)
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 2 {
			t.Errorf("left: %v", files)
		}
	}
	if err := config.Rewrite(t.Context(), link, []config.Edit{{"--add", "guard.alsoRef", "a"}, {"--add", "guard.alsoRef", "b"}}); err != nil {
		t.Fatal(err)
	}
	has("# kept\n[site]\n\tname = x\n[guard]\n\talsoRef = a\n\talsoRef = b\n")
	err = config.Rewrite(t.Context(), path, []config.Edit{{"site.gerrit", "/x"}, {"no-section", "y"}})
	if err == nil || !strings.Contains(err.Error(), "no-section") {
		t.Errorf("an edit that git refuses: %v", err)
	}
	has("# kept\n[site]\n\tname = x\n[guard]\n\talsoRef = a\n\talsoRef = b\n")
	made := filepath.Join(t.TempDir(), "new")
	if err := config.Rewrite(t.Context(), made, []config.Edit{{"core.x", "y"}}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(made); err != nil || string(text) != "[core]\n\tx = y\n" {
		t.Errorf("a new file: %q, %v", text, err)
	}
}

func TestARepositoryIsOneProject(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := filepath.Join(dir, "git")
	repository := func(path string) string {
		path = filepath.Join(dir, path)
		for _, d := range []string{"objects", "refs"} {
			if err := os.MkdirAll(filepath.Join(path, d), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(path, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to, at string) {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	bare, plain, tree := repository("git/team/bare.git"), repository("git/plain"), repository("git/tree/.git")
	twice, twice2 := repository("git/twice.git"), repository("git/twice")
	outside, elsewhere := repository("outside.git"), repository("elsewhere.git")
	named := repository("git/named.git")
	link("outside.git", "git/out.git")
	link("git/team/bare.git", "git/alias.git")
	link("git", "link")
	c, err := load(t, "[site]\nname = x\nroot = "+dir+"/link\n[repository \"a/b\"]\npath = "+elsewhere+"\n[repository \"own name\"]\npath = "+named)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ dir, project, says string }{
		{bare, "team/bare", ""},
		{filepath.Join(dir, "link/team/bare.git"), "team/bare", ""},
		{filepath.Join(root, "alias.git"), "team/bare", ""},
		{plain, "plain", ""},
		{tree, "tree", ""},
		{elsewhere, "a/b", ""},
		{named, "own name", ""},
		{twice, "", "could be"},
		{twice2, "", "could be"},
		{outside, "", "is neither below site.root nor"},
		{filepath.Join(root, "out.git"), "", "is neither below site.root nor"},
		{root, "", "is neither below site.root nor"},
		{filepath.Join(root, "nothing"), "", "is not the absolute path of a directory"},
		{"git/plain", "", "is not the absolute path of a directory"},
	} {
		r, err := c.Find(x.dir)
		check(t, x.dir, r.Project, err, x.project, x.says)
	}
	for _, x := range []struct{ project, path, says string }{
		{"team/bare", bare, ""},
		{"plain", plain, ""},
		{"tree", tree, ""},
		{"a/b", elsewhere, ""},
		{"own name", named, ""},
		{"named", "", `is project "own name"`},
		{"twice", "", "could be"},
		{"out", "", "leads through a symbolic link"},
		{"alias", "", "leads through a symbolic link"},
		{"nothing", "", "there is no repository"},
		{"team", "", "there is no repository"},
		{"../outside", "", "can't be a path below site.root"},
		{"team/../plain", "", "can't be a path below site.root"},
		{"/plain", "", "can't be a path below site.root"},
		{"plain/", "", "can't be a path below site.root"},
		{".", "", "can't be a path below site.root"},
		{"team/bare.git", "", "can't be a path below site.root"},
		{"", "", "empty"},
	} {
		r, err := c.Repository(x.project)
		check(t, x.project, r.Path, err, x.path, x.says)
	}
	all, err := c.Repositories()
	if err != nil {
		t.Fatal(err)
	}
	var projects []string
	for _, r := range all {
		projects = append(projects, r.Project)
	}
	if got := strings.Join(projects, ", "); got != "a/b, own name, plain, team/bare, tree" {
		t.Errorf("repositories: %s", got)
	}
}

func check(tb testing.TB, what, got string, err error, want, says string) {
	tb.Helper()
	if says == "" && (err != nil || got != want) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
		tb.Errorf("%s: %q, %v, want %q or an error with %q", what, got, err, want, says)
	}
}

func TestAPushMirror(t *testing.T) {
	load := func(text string) config.PushMirror {
		t.Helper()
		file := filepath.Join(t.TempDir(), "site.config")
		if err := os.WriteFile(file, []byte("[site]\nname = x\n[pushMirror \"m\"]\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		return c.PushMirrors[0]
	}
	m := load("url = git@host:{project}.git\nurl = git@host:mirrors/{dashed}.git\nproject = team/*\nref = refs/heads/*")
	for what, c := range map[string][2]any{
		"the address":           {m.Address("team/app"), "git@host:mirrors/team-app.git"},
		"a project":             {m.Pushes("team/app"), true},
		"another project":       {m.Pushes("other"), false},
		"a ref":                 {m.PushesRef("refs/heads/x"), true},
		"another ref":           {m.PushesRef("refs/tags/x"), false},
		"an escaped address":    {load("url = https://host/{project}.git").Address("team/a#1"), "https://host/team/a%231.git"},
		"an address of ssh":     {load("url = git@host:{project}.git").Address("team/a#1"), "git@host:team/a#1.git"},
		"it is like itself":     {m.IsLike(m), true},
		"it is like another":    {m.IsLike(load("url = git@host:mirrors/{dashed}.git\nproject = team/*")), false},
		"by default, a project": {load("url = {project}").Pushes("other"), true},
		"by default, a tag":     {load("url = {project}").PushesRef("refs/tags/x"), true},
		"by default, a note":    {load("url = {project}").PushesRef("refs/notes/x"), false},
		"one project's address": {load("url = y\nproject = app").Address("app"), "y"},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %v, want %v", what, c[0], c[1])
		}
	}
}
