package catchup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A git that is killed, such as for want of memory, has refused nothing.
func TestAKilledGitIsNoRefusal(t *testing.T) {
	r := sitetest.NewReplicas(t)
	r.Both(t, sitetest.MainRef, r.A.Commit(t, "x"))
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$*\" in *update-ref*) kill -9 $$ ;; esac\nexec " + git + " \"$@\"\n"
	if err := testprogram.Write(filepath.Join(bin, "git"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s, err := r.TrySync(t.Context(), r.DB, catchup.Options{Peer: "a"})
	if err == nil || !strings.Contains(err.Error(), "killed") || len(s.Each) > 0 {
		t.Errorf("%v, %+v", err, s.Each)
	}
}
