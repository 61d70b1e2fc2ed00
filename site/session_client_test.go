package site_test

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/site/wire/wiretest"
)

// A jgit plays a process that moves refs by itself. It is the test's own process, or a child that hands on what it reads and writes.
type jgit struct {
	g      *guard
	id     string
	number uint64
	tx     int
	conn   io.ReadWriteCloser
	r      *bufio.Reader
	child  *exec.Cmd // nil: this process
	heard  []wire.Message
	open   []wire.Open // what the next session begins with
}

func (g *guard) jgit() *jgit {
	g.tb.Helper()
	id := make([]byte, 16)
	rand.Read(id)
	return &jgit{g: g, id: hex.EncodeToString(id)}
}

// jgitChild is a jgit in a process of its own.
func (g *guard) jgitChild() *jgit {
	g.tb.Helper()
	j := g.jgit()
	j.child = exec.Command("/proc/self/exe")
	j.child.Env = append(os.Environ(), relayVar+"="+filepath.Join(g.dir, "sock"))
	return j
}

// relayVar makes this test's program hand on what it reads to the socket of that path, and back.
const relayVar = "REFDB_TEST_RELAY"

// relayLockVar names a file that it holds a record lock on.
const relayLockVar = "REFDB_TEST_RELAY_LOCK"

func relay(path string) {
	if lock := os.Getenv(relayLockVar); lock != "" {
		f := sitetest.LockHere(lock)
		defer f.Close()
		defer sitetest.ListenHere().Close()
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		io.Copy(conn, os.Stdin)
		conn.(*net.UnixConn).CloseWrite() // that ends the session
	}()
	// Not by splice, which asks without a pause whether a full pipe has room.
	io.Copy(struct{ io.Writer }{os.Stdout}, struct{ io.Reader }{conn})
	select {} // it lives on
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

// dial connects.
func (j *jgit) dial() {
	j.g.tb.Helper()
	if j.child == nil {
		conn, err := net.Dial("unix", filepath.Join(j.g.dir, "sock"))
		if err != nil {
			j.g.tb.Fatal(err)
		}
		j.g.tb.Cleanup(func() { conn.Close() })
		conn.SetReadDeadline(time.Now().Add(sitetest.Patience))
		j.conn, j.r = conn, bufio.NewReader(conn)
		return
	}
	in, err := j.child.StdinPipe()
	if err != nil {
		j.g.tb.Fatal(err)
	}
	out, err := j.child.StdoutPipe()
	if err == nil {
		err = j.child.Start()
	}
	if err != nil {
		j.g.tb.Fatal(err)
	}
	j.g.tb.Cleanup(func() { j.kill() })
	j.conn, j.r = pipes{out, in}, bufio.NewReader(out)
}

// kill is kill -9 of a child.
func (j *jgit) kill() {
	j.child.Process.Kill()
	j.child.Wait()
}

func (j *jgit) first() wire.Begin {
	j.number++
	return wire.Begin{Guard: j.id, Number: j.number, Name: "test 1", Root: filepath.Join(j.g.dir, "git"), Open: j.open}
}

// begin begins a session, and returns the daemon's answer.
func (j *jgit) begin(change ...func(*wire.Begin)) wire.Message {
	j.g.tb.Helper()
	j.dial()
	b := j.first()
	for _, c := range change {
		c(&b)
	}
	j.say(b)
	m, err := wiretest.ReadWelcome(j.r)
	if err != nil {
		j.g.tb.Fatalf("the daemon said %v", err)
	}
	return m
}

// session begins a session that is welcome.
func (j *jgit) session() *jgit {
	j.g.tb.Helper()
	if m, ok := j.begin().(wire.Welcome); !ok {
		j.g.tb.Fatalf("the daemon said %+v", m)
	}
	return j
}

func (j *jgit) say(m wire.Message) {
	j.g.tb.Helper()
	if err := wiretest.Write(j.conn, m); err != nil {
		j.g.tb.Fatal(err)
	}
}

// hear returns the next message about a transaction, and leaves others for later.
func (j *jgit) hear(tx string) wire.Message {
	j.g.tb.Helper()
	for i, m := range j.heard {
		if transactionOf(m) == tx {
			j.heard = append(j.heard[:i:i], j.heard[i+1:]...)
			return m
		}
	}
	for {
		m, err := wiretest.ReadFromDaemon(j.r)
		if err != nil {
			j.g.tb.Fatalf("waiting for a word about %s: %v", tx, err)
		}
		if transactionOf(m) == tx {
			return m
		}
		j.heard = append(j.heard, m)
	}
}

// ping waits until the daemon has heard all that was said.
func (j *jgit) ping() {
	j.g.tb.Helper()
	j.say(wire.Ping{})
	j.hear("")
}

// transactionOf returns the transaction that a message is about; "" if none.
func transactionOf(m wire.Message) string {
	switch m := m.(type) {
	case wire.WaitOn:
		return m.TX
	case wire.Granted:
		return m.TX
	case wire.Refused:
		return m.TX
	case wire.Settled:
		return m.TX
	}
	return ""
}

// line is a move of a ref; "" is absent.
func line(ref, old, to string) wire.Line {
	if old == "" {
		old = zero
	}
	if to == "" {
		to = zero
	}
	return wire.Line{Old: old, New: to, Ref: ref}
}

// announce announces moves, and does not wait for the answer.
func (j *jgit) announce(lines ...wire.Line) (tx string) {
	j.g.tb.Helper()
	j.tx++
	tx = fmt.Sprintf("t%d", j.tx)
	j.say(wire.Announce{TX: tx, Limit: sitetest.Patience, Dir: j.g.repo, By: "alice", Lines: lines})
	return tx
}

// granted announces moves, and has their OK.
func (j *jgit) granted(lines ...wire.Line) (tx string) {
	j.g.tb.Helper()
	tx = j.announce(lines...)
	if m := j.answer(tx); m != (wire.Granted{TX: tx}) {
		j.g.tb.Fatalf("the daemon said %+v, want an OK", m)
	}
	return tx
}

// answer returns the answer to an announcement.
func (j *jgit) answer(tx string) any {
	j.g.tb.Helper()
	for {
		switch m := j.hear(tx).(type) {
		case wire.WaitOn:
		case wire.Refused:
			return refusedAs{m.Kind, m.Reason}
		default:
			return m
		}
	}
}

// refusedAs is a refusal without its text.
type refusedAs struct{ kind, reason string }

// move moves refs as JGit does: no hook runs.
func (j *jgit) move(lines ...wire.Line) {
	j.g.tb.Helper()
	var in strings.Builder
	for _, l := range lines {
		switch {
		case l.NewZero():
			fmt.Fprintf(&in, "delete %s %s\n", l.Ref, l.Old)
		default:
			fmt.Fprintf(&in, "update %s %s %s\n", l.Ref, l.New, l.Old)
		}
	}
	cmd := exec.Command("git", "--git-dir="+j.g.repo, "-c", "core.hooksPath=/dev/null", "update-ref", "--stdin")
	cmd.Stdin = strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		j.g.tb.Fatalf("%v: %s", err, out)
	}
}

// report reports a transaction, and returns what the daemon says that its refs hold.
func (j *jgit) report(tx string) map[string]string {
	j.g.tb.Helper()
	j.say(wire.Report{TX: tx})
	return j.settled(tx)
}

func (j *jgit) settled(tx string) map[string]string {
	j.g.tb.Helper()
	for {
		switch m := j.hear(tx).(type) {
		case wire.Settled:
			values := map[string]string{}
			for _, v := range m.Values {
				values[v.Ref] = v.Value
			}
			return values
		case wire.Granted: // it comes too late
		default:
			j.g.tb.Fatalf("the daemon said %+v, want settled", m)
		}
	}
}

// lists has the next session begin with an open transaction.
func (j *jgit) lists(tx string, lines ...wire.Line) {
	j.open = append(j.open, wire.Open{TX: tx, Dir: j.g.repo, Lines: lines})
}

// agents returns who the site's intents are of.
func (g *guard) agents() (all []string) {
	g.tb.Helper()
	for i, err := range g.db.Intents().All(g.tb.Context(), driver.IntentFilter{Owner: g.name}) {
		if err != nil {
			g.tb.Fatal(err)
		}
		all = append(all, i.Agent)
	}
	return all
}

func sessionTest(t *testing.T, settings ...string) *guard {
	t.Helper()
	return newGuard(t, sessionDatabase(t), "eu-1", settings...)
}
