//go:build linux

package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// A recorder records the calls of a reference-transaction hook.
type recorder struct {
	log string
	h   *history
}

// recordIn puts a recording hook into a repository. name is the hook's file.
func recordIn(t testing.TB, h *history, repo, name string) *recorder {
	t.Helper()
	r := &recorder{log: filepath.Join(repo, name+".log"), h: h}
	// One write for each call, so that calls of concurrent pushes don't mix.
	writeScript(t, filepath.Join(repo, "hooks", name), fmt.Sprintf(`
lines=$(sed 's/$/,/')
echo "$1" $lines >>%q
`, r.log))
	return r
}

// take returns what was recorded since the last call, without the state
// preparing, and whether that occurred: "prepared A B refs/heads/x; committed …".
func (r *recorder) take(t testing.TB) (calls string, preparing bool) {
	t.Helper()
	text, err := os.ReadFile(r.log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.RemoveAll(r.log); err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "preparing") {
			preparing = true
			continue
		}
		all = append(all, strings.TrimSuffix(r.h.letters().Replace(strings.TrimSpace(line)), ","))
	}
	return strings.Join(all, "; "), preparing
}

func writeScript(t testing.TB, path, body string) {
	t.Helper()
	// Renamed into place: a file that was just written may still be open in a
	// process that is being forked, and can't be executed then.
	if err := testprogram.Write(path+".new", []byte("#!/bin/sh\n"+body)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}
