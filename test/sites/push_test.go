//go:build linux

package sites

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// A push is what a client was told of a git push.
type push struct {
	ok     bool              // the exit status
	status map[string]byte   // by ref, as git push --porcelain has it; without those it was told nothing of
	reason map[string]string // of the refused ones
	said   string            // stderr
}

// push pushes from a history.
func (h *history) push(t testing.TB, url string, args ...string) push {
	t.Helper()
	p, started := h.startPush(t, url, args...)
	return started(p)
}

// startPush starts a push and returns what waits for its end.
func (h *history) startPush(t testing.TB, url string, args ...string) (*child, func(*child) push) {
	t.Helper()
	cmd := h.g.client(t, url).command(h.dir, append([]string{"push", "--porcelain", "--no-verify", url}, args...)...)
	out := newOutput(t)
	cmd.Stdout = out.file
	return launch(t, cmd), func(c *child) push {
		t.Helper()
		return readPush(c.wait(t), out.String(), c.out.String())
	}
}

func readPush(ok bool, out, said string) push {
	p := push{ok: ok, status: make(map[string]byte), reason: make(map[string]string), said: said}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 || len(fields[0]) != 1 {
			continue
		}
		_, ref, _ := strings.Cut(fields[1], ":")
		p.status[ref] = fields[0][0]
		if _, reason, found := strings.Cut(fields[2], "("); fields[0] == "!" && found {
			p.reason[ref] = strings.TrimSuffix(reason, ")")
		}
	}
	return p
}

// accepted returns the refs that the client was told are accepted or up to date.
func (p push) accepted() map[string]bool {
	all := make(map[string]bool)
	for ref, flag := range p.status {
		if flag != '!' {
			all[ref] = true
		}
	}
	return all
}

// remote returns what the server said to the client: the lines after "remote: ".
func (p push) remote() string {
	var all []string
	for line := range strings.Lines(p.said) {
		if text, ok := strings.CutPrefix(line, "remote: "); ok {
			all = append(all, strings.TrimSpace(text))
		}
	}
	return strings.Join(all, "\n")
}

// sameRefs fails the test unless two repositories hold the same.
func sameRefs(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	shown := 0
	for _, ref := range sortedKeys(got, want) {
		if got[ref] != want[ref] {
			if shown++; shown > 10 {
				t.Errorf("%s: and more", what)
				return
			}
			t.Errorf("%s: %s is %q, not %q", what, ref, got[ref], want[ref])
		}
	}
}

func sortedKeys(sets ...map[string]string) []string {
	all := make(map[string]string)
	for _, m := range sets {
		maps.Copy(all, m)
	}
	return slices.Sorted(maps.Keys(all))
}
