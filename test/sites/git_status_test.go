//go:build linux

package sites

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// gitStage is a repository that is served in that way, and a history to push.
func gitStage(t *testing.T, g *git, way transport) (s *stage, url string) {
	t.Helper()
	root := shortDir(t)
	s = &stage{t, g, newHistory(t, g, "sha1", 0, 0), filepath.Join(root, "r.git")}
	g.initBare(t, s.repo, files)
	g.run(t, s.repo, "config", "http.receivepack", "true")
	return s, way.serve(t, g, root) + "/r.git"
}

// eachTransport runs test with each version of git over each transport.
func eachTransport(t *testing.T, test func(t *testing.T, g *git, way transport)) {
	eachGit(t, func(t *testing.T, g *git) {
		for _, way := range transports {
			t.Run(way.name, func(t *testing.T) {
				t.Parallel()
				test(t, g, way)
			})
		}
	})
}

const veto = "[ \"$1\" != prepared ] || { echo no, says the transaction >&2; exit 1; }\n"

func TestAVetoInPreparedEndsThePushWithoutAStatusForEachRef(t *testing.T) {
	eachTransport(t, func(t *testing.T, g *git, way transport) {
		s, url := gitStage(t, g, way)
		// Nothing against x, which comes first.
		writeScript(t, filepath.Join(s.repo, "hooks/reference-transaction"), "grep -q refs/heads/y || exit 0\n"+veto)
		p := s.h.push(t, url, s.h.a+":refs/heads/x", s.h.a+":refs/heads/y")
		if p.ok || len(p.accepted()) > 0 {
			t.Errorf("the client was told %v", p)
		}
		if way.stderr && !regexp.MustCompile(`aborted by (the reference-transaction )?hook`).MatchString(p.said) {
			t.Errorf("the client reads %q", p.said)
		}
		if got := strings.Contains(p.said, "no, says the transaction"); got != way.stderr {
			t.Errorf("what the hook says reaches the client: %t. It reads %q", got, p.said)
		}
		refs := g.refs(t, s.repo)
		if newer, known := g.measured(); known && (refs["refs/heads/x"] == "") != newer || refs["refs/heads/y"] != "" {
			t.Errorf("refs: %v", refs)
		}
	})
}

func TestAVetoOfUpdateIsReadableAndOtherRefsGoOn(t *testing.T) {
	eachTransport(t, func(t *testing.T, g *git, way transport) {
		s, url := gitStage(t, g, way)
		writeScript(t, filepath.Join(s.repo, "hooks/update"), "[ $1 != refs/heads/y ] || { echo no, says update >&2; exit 1; }\n")
		p := s.h.push(t, url, s.h.a+":refs/heads/x", s.h.a+":refs/heads/y")
		if p.ok || p.status["refs/heads/x"] != '*' || p.reason["refs/heads/y"] != "hook declined" || p.remote() != "no, says update\nerror: hook declined to update refs/heads/y" {
			t.Errorf("the client was told %v", p)
		}
		sameRefs(t, "after the push", g.refs(t, s.repo), map[string]string{"refs/heads/x": s.h.a})
	})
}

func TestStatusInOtherStatesIsIgnored(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		s, url := gitStage(t, g, transports[0])
		writeScript(t, filepath.Join(s.repo, "hooks/reference-transaction"), "case $1 in committed|aborted) exit 1;; esac\n")
		if p := s.h.push(t, url, s.h.a+":refs/heads/x"); !p.ok {
			t.Errorf("creating: %v", p)
		}
		if p := s.h.push(t, url, ":refs/heads/x"); !p.ok {
			t.Errorf("deleting: %v", p)
		}
		sameRefs(t, "after the pushes", g.refs(t, s.repo), nil)
	})
}

func TestAMissingHookFailsOpen(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"gone":           os.Remove,
		"not executable": func(path string) error { return os.Chmod(path, 0o644) },
		"broken symlink": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink("nowhere", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGit(t, func(t *testing.T, g *git) {
				s, url := gitStage(t, g, transports[0])
				hook := filepath.Join(s.repo, "hooks/reference-transaction")
				writeScript(t, hook, veto)
				if p := s.h.push(t, url, s.h.a+":refs/heads/x"); p.ok {
					t.Errorf("with the hook: %v", p)
				}
				if err := spoil(hook); err != nil {
					t.Fatal(err)
				}
				if p := s.h.push(t, url, s.h.a+":refs/heads/x"); !p.ok {
					t.Errorf("without: %v", p)
				}
			})
		})
	}
}

func TestAHookThatIsKilledInPreparedFailsClosed(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		s, url := gitStage(t, g, transports[0])
		writeScript(t, filepath.Join(s.repo, "hooks/reference-transaction"), "kill -9 $$\n")
		if p := s.h.push(t, url, s.h.a+":refs/heads/x"); p.ok {
			t.Errorf("the client was told %v", p)
		}
		sameRefs(t, "after the push", g.refs(t, s.repo), nil)
	})
}
