//go:build unix

package hooks

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/modes"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/serving"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// waitingPair returns the connection of a hook, and where the hook reads.
func waitingPair(t *testing.T) (conn, hook *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends []*net.UnixConn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends = append(ends, c.(*net.UnixConn))
	}
	return ends[0], ends[1]
}

// One attempt may outlast the hook's limit: what comes after it has a limit of its own, and the hook waits for that.
func TestAnAttemptOfAPushRenewsTheLimitOfItsHook(t *testing.T) {
	root := t.TempDir()
	repo := config.Repository{Project: "p", Path: filepath.Join(root, "p.git")}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", repo.Path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	file := filepath.Join(root, "site.config")
	text := fmt.Sprintf("[site]\nname = b\nroot = %s\nsocket = %[1]s/s\nstate = %[1]s\nstore = none\ntimeout = 10m\ndatabaseWait = 50m\n", root)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(t.Context(), file)
	if err == nil {
		err = projects.RecordID(t.Context(), repo, "AN-ID")
	}
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "b"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		if _, err := db.Projects().Put(t.Context(), driver.Project{Project: "p", ID: "AN-ID", Mode: config.Enforce, Rules: "ref refs/tags/*"}); err != nil {
			t.Fatal(err)
		}
		state := serving.New(c, nil)
		state.Work = t.Context()
		logged, known := modes.NewLogged(), &projects.Cache{}
		h := &Hooks{Deps: Deps{State: state, DB: db, Projects: known, Limits: Limits{Answer: time.Hour, Waiting: 1}, Policy: policy.New(policy.Policy{
			State: state, DB: db, Projects: known, Logged: &logged, Logger: slog.New(slog.DiscardHandler),
		})}}
		conn, hook := waitingPair(t)
		go func() {
			time.Sleep(wire.DefaultLimit + 5500*time.Millisecond)
			state.Inherit()
			state.Start()
		}()
		q := wire.Request{
			State: wire.StatePreReceive, Dir: repo.Path, Process: &wire.Process{PID: 1, Parent: 1, ParentStart: "-"}, Limit: wire.DefaultLimit,
			Body: []byte("0000000000000000000000000000000000000000 1111111111111111111111111111111111111111 refs/heads/main\n"),
		}
		renewed, _, err := h.preReceiveInOutage(t.Context(), pusher.Hook{}, conn, q)
		if err != nil || !renewed {
			t.Errorf("the limit began anew: %t; %v", renewed, err)
		}
		conn.Close()
		told, err := io.ReadAll(hook)
		// Once a second, and when the attempt has ended.
		if n := bytes.Count(told, []byte("\n")); err != nil || n != int(wire.DefaultLimit/time.Second)+5+1 {
			t.Errorf("the hook was told %d times to wait, with %q; %v", n, told, err)
		}
	})
}
