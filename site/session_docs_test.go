package site_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// The example of docs/SOCKET.md is what a guard and this daemon say.
func TestTheExampleOfTheProtocolOfSessions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/SOCKET.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(text), "```text\n")
	example, _, closed := strings.Cut(example, "```")
	if !ok || !closed {
		t.Fatal("docs/SOCKET.md has no example")
	}
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	real := strings.NewReplacer("/srv/git", filepath.Join(g.dir, "git"), strings.Repeat("1", 40), a, strings.Repeat("2", 40), b)
	j := g.jgit()
	var says strings.Builder
	checked := 0
	for text := range strings.Lines(example) {
		text = strings.TrimSuffix(real.Replace(text), "\n")
		said, ours := strings.CutPrefix(text, ">")
		heard, theirs := strings.CutPrefix(text, "<")
		switch {
		case ours:
			says.WriteString(strings.TrimPrefix(said, " ") + "\n")
			if said != "" {
				continue
			}
			if strings.HasPrefix(says.String(), "refdb-session") {
				j.dial()
			}
			if _, err := j.conn.Write([]byte(says.String())); err != nil {
				t.Fatal(err)
			}
			says.Reset()
		case theirs:
			j.conn.(*net.UnixConn).SetReadDeadline(time.Now().Add(sitetest.Patience))
			got, err := j.r.ReadString('\n')
			if err != nil {
				t.Fatalf("waiting for %q: %v", heard, err)
			}
			want, rest := strings.TrimPrefix(heard, " ")+"\n", ""
			if begin, any := strings.CutSuffix(want, "…\n"); any {
				want, rest = begin, got[min(len(begin), len(got)):]
			}
			if got != want+rest {
				t.Fatalf("the daemon said %q, want %q", got, want)
			}
			checked++
		case text == "# Both refs move.":
			j.move(line(x, "", a), line("refs/cache-automerge/11/1", "", a))
		case text == "# The daemon is restarted. The ref moves meanwhile.":
			g.halt()
			g.start()
			j.move(line(x, a, b))
		default:
			t.Fatalf("the example has %q", text)
		}
	}
	if checked < 20 {
		t.Errorf("%d lines were compared", checked)
	}
	g.has(x, b, b)
}
