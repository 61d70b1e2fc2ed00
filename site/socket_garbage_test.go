package site_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Whatever is written to the socket, and wherever that breaks off, is refused or ignored, and the next push is served.
func TestTheDaemonOutlivesWhatIsNoRequest(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	var valid bytes.Buffer
	body := []byte(g.commit[0] + " " + g.commit[1] + " refs/heads/x\n")
	if err := (wire.Request{State: wire.StatePrepared, Dir: g.repo, Process: &wire.Process{PID: 1, Parent: 1, ParentStart: "1"}, Body: body}).Write(&valid); err != nil {
		t.Fatal(err)
	}
	frames := []string{
		"", "\n", "\x00", "refdb-hook 3", "refdb-hook 99\n\n", "refdb-hook 3\nstate x\nstate y\n\n", "refdb-hook 3\nlimit 99999999999999999999\n\n",
		"refdb-hook 3\nprocess 1 1 1\nstate prepared\ndir /\n\n\x00", "refdb-hook 3\nstate " + strings.Repeat("x", wire.MaxHeader) + "\n\n",
		"GET / HTTP/1.1\r\n\r\n", strings.Repeat("\xff", 1<<16),
		string(wire.SessionMagic), string(wire.SessionMagic) + strings.Repeat("x", 1<<16), string(wire.SessionMagic) + "1\n\n\n\n",
		string(wire.MovesMagic), string(wire.MovesMagic) + "99\n", string(wire.MovesMagic) + strings.Repeat("9", 1<<16),
	}
	step, connections := 1, 10_000
	if testing.Short() {
		step, connections = 13, 1_000
	}
	for i := 0; i <= valid.Len(); i += step {
		frames = append(frames, valid.String()[:i], valid.String()[:i]+"\x00", valid.String()[:i]+"\n\n")
	}
	for i, frame := range frames {
		conn, err := net.Dial("unix", filepath.Join(g.dir, "sock"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, frame) // the daemon need not read it all
		if i%2 == 0 {
			conn.Close()
			continue
		}
		conn.(*net.UnixConn).CloseWrite()
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) { // it ends, with an answer or without
			t.Errorf("%.100q: %v", frame, err)
		}
		conn.Close()
	}
	// More connections than there are slots, which say nothing and go away.
	for range connections {
		connectAndLeave(t, filepath.Join(g.dir, "sock"))
	}
	for i, err := range g.db.Intents().All(t.Context(), driver.IntentFilter{}) {
		t.Errorf("an intent stands: %+v, %v", i, err)
	}
	g.git("update-ref", "refs/heads/x", g.commit[0])
	g.has("refs/heads/x", g.commit[0], g.commit[0])
}

// connectAndLeave makes a connection, and closes it. It waits while the daemon has yet to accept as many as the system keeps for it.
func connectAndLeave(tb testing.TB, socket string) {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	defer syscall.Close(fd)
	for {
		switch err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err {
		case nil:
			return
		case syscall.EINTR: // it was not made
		default:
			tb.Fatal(err)
		}
	}
}
