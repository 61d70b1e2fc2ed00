package hookdir_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func program(tb testing.TB, mark string) []byte {
	tb.Helper()
	text, err := os.ReadFile(sitetest.HookFile(tb, mark))
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// provided returns a directory with the hooks of a program.
func provided(tb testing.TB, program []byte) hookdir.Dir {
	tb.Helper()
	d := hookdir.Dir(filepath.Join(tb.TempDir(), "hooks"))
	if did, err := d.Provide(tb.Context(), program, false); err != nil || did != "made" {
		tb.Fatalf("%s, %v", did, err)
	}
	return d
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// damages are what may become of the directory.
var damages = map[string]func(testing.TB, hookdir.Dir){
	"all is gone":           func(tb testing.TB, d hookdir.Dir) { must(tb, os.Rename(string(d), string(d)+".gone")) },
	"it leads nowhere":      func(tb testing.TB, d hookdir.Dir) { must(tb, os.Remove(d.HooksPath())) },
	"one hook is gone":      func(tb testing.TB, d hookdir.Dir) { must(tb, os.Remove(d.HooksPath()+"/reference-transaction")) },
	"hooks can't be run":    func(tb testing.TB, d hookdir.Dir) { must(tb, os.Chmod(d.HooksPath()+"/update", 0o444)) },
	"nobody can enter it":   func(tb testing.TB, d hookdir.Dir) { must(tb, os.Chmod(d.HooksPath(), 0o700)) },
	"pushes see no refs":    func(tb testing.TB, d hookdir.Dir) { must(tb, os.Remove(d.Config(nil))) },
	"another configuration": func(tb testing.TB, d hookdir.Dir) { replace(tb, d.Config(nil), "[receive]\n\thideRefs = !refs\n") },
	"another program":       func(tb testing.TB, d hookdir.Dir) { replace(tb, d.HooksPath()+"/pre-receive", "#!/bin/sh\n") },
}

func replace(tb testing.TB, path, text string) {
	tb.Helper()
	must(tb, testprogram.Write(path+".x", []byte(text)))
	must(tb, os.Rename(path+".x", path))
}

func TestTheDaemonRestoresItsSitesHooks(t *testing.T) {
	t.Parallel()
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := program(t, "")
			d := provided(t, hook)
			var alarms, comparisons atomic.Int32
			k := &hookdir.Keeper{
				Dir: d, Program: hook, Needed: func() bool { return true }, Logger: slog.New(slog.DiscardHandler),
				Alarm: func() { alarms.Add(1) }, Compare: func(context.Context) { comparisons.Add(1) },
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); k.Run(ctx) }()
			defer func() { cancel(); <-ended }()
			damage(t, d)
			sitetest.Eventually(t, "the hooks are restored, and refs compared", func() bool { return comparisons.Load() == 1 })
			if faults := d.Faults(hook); len(faults) > 0 {
				t.Errorf("left: %+v", faults)
			}
			if fault, lost := k.State(); fault != "" || lost != 1 || alarms.Load() != 1 {
				t.Errorf("%q, damaged %d times, %d alarms", fault, lost, alarms.Load())
			}
		})
	}
}

// Git accepts a push without the hook that decides.
func TestHooksThatCanNotBeRestoredAreTakenAway(t *testing.T) {
	t.Parallel()
	d := provided(t, program(t, ""))
	k := &hookdir.Keeper{Dir: d, Needed: func() bool { return true }, Logger: slog.New(slog.DiscardHandler), Alarm: func() {}, Compare: func(context.Context) {}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	must(t, os.Remove(d.HooksPath()+"/reference-transaction"))
	sitetest.Eventually(t, "the directory leads nowhere", func() bool { _, err := os.Lstat(d.HooksPath()); return err != nil })
	if fault, _ := k.State(); fault == "" {
		t.Error("nothing is wrong")
	}
}

// Git ignores hooks on a file system that is mounted noexec. The directory must not lead to them, not even until the daemon takes it away again.
func TestTheDirectoryDoesNotLeadToHooksThatCanNotBeRun(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs -o noexec none "$1" && "$2" "$1/hooks" && ls -A "$1/hooks"`, "sh", root, os.Args[0])
	cmd.Env = append(os.Environ(), providing+"="+sitetest.HookFile(t, ""))
	out, err := cmd.CombinedOutput()
	if sitetest.NoNamespace(string(out)) {
		t.Skipf("left out: another mount namespace, which can't be made here: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "can't be run") || strings.Contains(string(out), "current") {
		t.Errorf("%v: %s", err, out)
	}
}

// To compare thousands of repositories takes minutes.
func TestTheDaemonLooksAfterTheHooksWhileItCompares(t *testing.T) {
	t.Parallel()
	hook := program(t, "")
	d := provided(t, hook)
	compares, going := make(chan struct{}), make(chan struct{})
	k := &hookdir.Keeper{
		Dir: d, Program: hook, Needed: func() bool { return true }, Logger: slog.New(slog.DiscardHandler), Alarm: func() {},
		Compare: func(context.Context) { compares <- struct{}{}; <-going },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	must(t, os.Remove(d.HooksPath()))
	<-compares
	must(t, os.Remove(d.HooksPath()))
	sitetest.Eventually(t, "the hooks are restored again", func() bool { return len(d.Faults(hook)) == 0 })
	going <- struct{}{}
	<-compares
	close(going)
}

// Somebody else may have made it, for more than this.
func TestADirectoryThatIsThereKeepsTheRestOfItsMode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "hooks")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chmod(dir, os.ModeSetgid|0o770))
	if _, err := hookdir.Dir(dir).Provide(t.Context(), program(t, ""), false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o775 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestADirectoryThatNobodyNeedsIsNoAlarm(t *testing.T) {
	t.Parallel()
	k := &hookdir.Keeper{
		Dir: hookdir.Dir(t.TempDir() + "/hooks"), Needed: func() bool { return false }, Logger: slog.New(slog.DiscardHandler),
		Alarm: func() { t.Error("an alarm") }, Compare: func(context.Context) { t.Error("refs are compared") },
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k.Run(ctx)
}

func TestTheDaemonExchangesTheHooks(t *testing.T) {
	t.Parallel()
	older := program(t, "older")
	d := provided(t, older)
	hidden := []string{"refs/secret", "!refs/secret/x"}
	must(t, d.ProvideConfig(t.Context(), hidden))
	before, err := filepath.EvalSymlinks(d.HooksPath())
	must(t, err)
	must(t, os.Mkdir(string(d)+"/.new-left", 0o700)) // by a crash
	hook := program(t, "")
	if did, err := d.Provide(t.Context(), hook, false); err != nil || !strings.HasPrefix(did, "is there, but of another version") {
		t.Errorf("enable: %s, %v", did, err)
	}
	if faults := d.Faults(hook); len(faults) != 1 || faults[0].Code != hookdir.Outdated {
		t.Errorf("faults: %+v", faults)
	}
	if did, err := d.Provide(t.Context(), hook, true); err != nil || did != "replaced by this version" {
		t.Errorf("the daemon: %s, %v", did, err)
	}
	if faults := d.Faults(hook); len(faults) > 0 {
		t.Errorf("faults: %+v", faults)
	}
	if text, err := os.ReadFile(d.Config(hidden)); err != nil || !strings.Contains(string(text), "!refs/secret/x") {
		t.Errorf("what repositories include: %q, %v", text, err)
	}
	// A git that has found the hook may be about to run it.
	if _, err := os.Stat(before + "/update"); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(string(d) + "/.new-*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if _, err := d.Provide(t.Context(), program(t, "newer"), true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(before); err == nil {
		t.Error("what no git needs any more is still there")
	}
}

func TestNobodyMayWriteToTheHooks(t *testing.T) {
	t.Parallel()
	d := provided(t, program(t, ""))
	for _, name := range append(hookdir.Names[:], "", "config") {
		info, err := os.Stat(filepath.Join(d.HooksPath(), name))
		others := info.Mode().Perm() &^ 0o200 // the owner of the directory may remove it
		if name != "" {
			others = info.Mode().Perm()
		}
		if err != nil || others&0o222 != 0 || others&0o444 != 0o444 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

// A disk that is unmounted takes the repositories and the directory along. A new one below its mount point would guard nothing, and hide from
// whoever looks there that the disk is away.
func TestADirectoryIsNotMadeAnewWhereTheRepositoriesAreAway(t *testing.T) {
	t.Parallel()
	hook := program(t, "")
	d := provided(t, program(t, "older"))
	var asked atomic.Int32
	k := &hookdir.Keeper{
		Dir: d, Program: hook, Logger: slog.New(slog.DiscardHandler), Needed: func() bool { asked.Add(1); return false },
		Alarm: func() { t.Error("an alarm") }, Compare: func(context.Context) { t.Error("refs are compared") },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); k.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	sitetest.Eventually(t, "the hooks are exchanged", func() bool { return len(d.Faults(hook)) == 0 })
	must(t, os.Rename(string(d), string(d)+".away"))
	madeAnew := func() bool { _, err := os.Lstat(string(d)); return err == nil }
	sitetest.Eventually(t, "the keeper looks twice", func() bool { return asked.Load() >= 2 || madeAnew() })
	if madeAnew() {
		t.Error("it was made anew")
	}
}
