//go:build linux

package sites

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A watched line is one of refdbctl watch -o json.
type watched struct {
	Ref      string `json:"ref"`
	Position int64  `json:"position"`
	Cursor   string `json:"cursor"`
}

// A watcher runs the refdbctl of a version.
type watcher struct {
	t        testing.TB
	bin, url string
}

func (w watcher) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "refdbctl"), args...)
	cmd.Env = append(os.Environ(), "REFDB_URL="+w.url)
	return cmd
}

func (w watcher) put(ref string) {
	w.t.Helper()
	if out, err := w.command(w.t.Context(), "refs", "put", "p", "refs/heads/"+ref, strings.Repeat("1", 40), "--old", "none").CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
}

// watch reads the changes after a cursor until it has one of a ref or, for "", is told how far it is. It returns the names of all.
func (w watcher) watch(since, last string) (refs []string, cursor string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	args := []string{"watch", "--progress", "-o", "json"}
	if since != "" {
		args = append(args, "--since", since)
	}
	cmd := w.command(ctx, args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var line watched
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			w.t.Fatalf("%v: %s", err, lines.Text())
		}
		name := strings.TrimPrefix(line.Ref, "refs/heads/")
		if name != "" {
			refs = append(refs, name)
		}
		if name == last {
			return refs, line.Cursor
		}
	}
	_ = cmd.Wait()
	w.t.Fatalf("after %q: it ended: %s", refs, &complaint)
	return nil, ""
}

// The program of before takes for read what has ended, which a crash may give to other changes.
func TestCursorsOfTheProgramBeforeAndOfThisOneAfterACrash(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the programs from before the newest migration are built, a minute; make test-all runs it")
	}
	s := dbtest.StartPostgres(t)
	now, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	before, this := watcher{t, earlierPrograms(t), s.URL()}, watcher{t, now, s.URL()}
	this.put("zero")
	var theirs, ours string
	s.ReuseIDs(40, func() {
		_, theirs = before.watch("", "")
		_, ours = this.watch("", "")
	})
	// Nothing was lost: who says otherwise raises a false alarm.
	this.watch(theirs, "")
	this.watch(ours, "")
	before.watch(ours, "")
	want := []string{"a", "b", "c"}
	for i, w := range []watcher{this, before, this} {
		w.put(want[i])
	}
	for name, read := range map[string]func() ([]string, string){
		"this program, the cursor of before": func() ([]string, string) { return this.watch(theirs, "c") },
		"this program, its own cursor":       func() ([]string, string) { return this.watch(ours, "c") },
		"the program of before, this cursor": func() ([]string, string) { return before.watch(ours, "c") },
	} {
		if got, _ := read(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
