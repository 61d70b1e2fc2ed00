//go:build linux

package sites

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A reviewHook is a hook proc-receive as forges have it: it makes refs/pull/1/head of whatever is pushed for review, unless the branch is
// called "refused", about which it thinks until a test lets it answer. The protocol is that of githooks(5).
const reviewHook = `
read_packet() {
	length=$(dd bs=1 count=4 2>/dev/null)
	[ "$length" != 0000 ] || return 1
	line=$(dd bs=1 count=$((0x$length - 4)) 2>/dev/null | tr -d '\0')
}
packet() { printf '%04x%s' $((${#1} + 4)) "$1"; }
while read_packet; do :; done
packet version=1
printf 0000
commands=
while read_packet; do commands="$commands$line
"; done
printf %s "$commands" | while read -r old new ref; do
	case $ref in
	*/refused)
		: >DIR/asked
		until [ -e DIR/answer ]; do sleep 0.01; done
		packet "ng $ref nobody wants it" ;;
	*) if git update-ref refs/pull/1/head "$new" >&2; then
		packet "ok $ref"; packet "option refname refs/pull/1/head"
	else
		packet "ng $ref not stored"
	fi ;;
	esac
done
printf 0000
`

// What is pushed for review may be as large as what is pushed to a branch: the repository's hook proc-receive moves a ref of its own to it.
func TestReviewsOfAnySize(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	dir := shortDir(t)
	writeScript(t, filepath.Join(c.us.repo(project), "hooks", "proc-receive"), strings.ReplaceAll(reviewHook, "DIR", dir))
	c.us.git("config", "receive.procReceiveRefs", "refs/for")
	stored := func() int64 {
		t.Helper()
		usage, err := c.db.Packs().Usage(t.Context(), project)
		return must(t, usage, err).Size + usage.UnusedSize
	}
	before := stored()

	c.us.pushed(c.h.b + ":refs/for/main")
	large := commitOfSize(t, c, 9<<20, c.h.b)
	const refused = "refs/for/refused"
	push := c.us.startPush(large + ":" + refused)
	eventually(t, "the decision of proc-receive", func() error { _, err := os.Stat(filepath.Join(dir, "asked")); return err })
	if n := stored() - before; n < 9<<20 {
		t.Errorf("%d bytes are stored before proc-receive decides", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "answer"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := push(); p.ok || p.reason[refused] != "nobody wants it" {
		t.Errorf("what nobody wants: %+v", p)
	}
	eventually(t, "what was stored in vain is dropped", func() error {
		if n := stored() - before; n > 1<<20 {
			return fmt.Errorf("%d bytes are left", n)
		}
		return nil
	})

	c.us.pushed(large + ":refs/for/main")
	c.settled()
	if got := c.globalRefs()["refs/pull/1/head"]; got != large {
		t.Errorf("the review is at %s", got)
	}
	c.eu.follows(project)
	if got := c.eu.refs(project)["refs/pull/1/head"]; got != large {
		t.Errorf("at the other site it is at %s", got)
	}

	// The repository's own pre-receive decides first: what it refuses is not stored.
	writeScript(t, filepath.Join(c.us.repo(project), "hooks", "pre-receive"), "echo we do not want this >&2\nexit 1\n")
	before = stored()
	c.us.refused("we do not want this", commitOfSize(t, c, 9<<20+1, c.h.b)+":refs/for/main")
	if n := stored() - before; n != 0 {
		t.Errorf("%d bytes were stored of what pre-receive refused", n)
	}
}
