package site_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// example returns one of the conversations of docs/SOCKET.md.
func example(t *testing.T, number int) string {
	t.Helper()
	text, err := os.ReadFile("../docs/SOCKET.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "```text\n")
	if len(parts) <= number {
		t.Fatalf("docs/SOCKET.md has %d examples", len(parts)-1)
	}
	example, _, closed := strings.Cut(parts[number], "```")
	if !closed {
		t.Fatal("the example has no end")
	}
	return example
}

// configs returns the site's configuration, and one whose times are the defaults.
func (g *guard) configs() (c, defaults *config.Config) {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	return c, g.newConfig(func(string) string { return "[site]\n\tname = eu-1\n\troot = " + g.dir + "\n" })
}

var placeName = regexp.MustCompile("PLACE-[0-9]+")

// converse says and expects what an example has. The guard's ID is that of the example. Between the messages happens what its comments say.
func (g *guard) converse(t *testing.T, j *jgit, example string, happens map[string]func()) {
	t.Helper()
	c, defaults := g.configs()
	real := strings.NewReplacer(
		fmt.Sprintf("lock-wait %d", defaults.LockWait.Milliseconds()), fmt.Sprintf("lock-wait %d", c.LockWait.Milliseconds()),
		fmt.Sprintf("timeout %d", (defaults.Timeout+defaults.LockWait).Milliseconds()), fmt.Sprintf("timeout %d", (c.Timeout+c.LockWait).Milliseconds()),
		" 5000 ", fmt.Sprintf(" %d ", sitetest.Patience.Milliseconds()), // which the guard chooses
		"/srv/git", filepath.Join(g.dir, "git"), strings.Repeat("1", 40), g.commit[0], strings.Repeat("2", 40), g.commit[1])
	places := map[string]string{} // what the daemon calls them
	named := func(s string) string {
		return placeName.ReplaceAllStringFunc(s, func(name string) string { return places[name] })
	}
	var says strings.Builder
	checked := 0
	for text := range strings.Lines(example) {
		text = strings.TrimSuffix(real.Replace(text), "\n")
		said, ours := strings.CutPrefix(text, ">")
		heard, theirs := strings.CutPrefix(text, "<")
		switch {
		case ours:
			says.WriteString(named(strings.TrimPrefix(said, " ")) + "\n")
			if said != "" {
				continue
			}
			if strings.HasPrefix(says.String(), "refdb-") {
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
			if name := placeName.FindString(heard); name != "" {
				if places[name] != "" {
					t.Errorf("%s is a place twice", name)
				}
				_, place, _ := strings.Cut(strings.TrimSpace(got), " ")
				places[name] = place
			}
			want, rest := strings.TrimPrefix(named(heard), " ")+"\n", ""
			if begin, any := strings.CutSuffix(want, "…\n"); any {
				want, rest = begin, got[min(len(begin), len(got)):]
			}
			if got != want+rest {
				t.Fatalf("the daemon said %q, want %q", got, want)
			}
			checked++
		case happens[text] != nil:
			happens[text]()
		default:
			t.Fatalf("the example has %q", text)
		}
	}
	if checked < 10 {
		t.Errorf("%d lines were compared", checked)
	}
}

// The first example of docs/SOCKET.md is what a guard and this daemon say.
func TestTheExampleOfTheProtocolOfSessions(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	j := g.jgit()
	g.converse(t, j, example(t, 1), map[string]func(){
		"# Both refs move.": func() { j.move(line(x, "", a), line("refs/cache-automerge/11/1", "", a)) },
		"# The daemon is restarted. The ref moves meanwhile.": func() {
			g.halt()
			g.start()
			j.move(line(x, a, b))
		},
	})
	g.has(x, b, b)
}

// The second one is what a reader of the list of moves and this daemon say.
func TestTheExampleOfTheListOfMoves(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a := g.commit[0]
	j, session := g.jgit(), g.jgit()
	session.id = "0123456789abcdef0123456789abcdef"
	session.session()
	g.converse(t, j, example(t, 2), map[string]func(){
		"# The guard moves refs/heads/x, and reports that. A push over git moves refs/heads/y.": func() {
			moves := []wire.Line{line(x, "", a)}
			tx := session.granted(moves...)
			session.move(moves...)
			session.report(tx)
			g.git("update-ref", y, a)
		},
		"# The machine crashes. All begin anew.": func() {
			g.halt()
			if err := os.RemoveAll(filepath.Join(g.dir, "state/moves")); err != nil {
				t.Fatal(err)
			}
			g.start()
		},
	})
}
