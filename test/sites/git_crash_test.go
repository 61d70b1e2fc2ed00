//go:build linux

package sites

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestGitKilledInPreparedLeavesTheOldValueAndALockFile(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		s, url := gitStage(t, g, transports[0])
		s.withoutHooks("fetch", "--quiet", s.h.dir, s.h.b)
		s.has(s.h.a, "refs/heads/x")
		stop := gateIn(t, s.repo, "reference-transaction")
		stop.shut("prepared")
		p, told := s.h.startPush(t, url, s.h.b+":refs/heads/x")
		kill9(t, stop.waits("prepared"))
		if got := told(p); got.ok {
			t.Errorf("the client was told %v", got)
		}
		stop.open("prepared")
		eventually(t, "the end of the orphaned hook", func() error {
			if !slices.Contains(stop.passed(), "prepared") {
				return errors.New("it has not passed")
			}
			return nil
		})
		sameRefs(t, "after the crash", g.refs(t, s.repo), map[string]string{"refs/heads/x": s.h.a})
		if calls := fmt.Sprint(stop.calls()); calls != "[prepared]" {
			t.Errorf("the hook was called in %s", calls)
		}
		left := filepath.Join(s.repo, "refs/heads/x.lock")
		if _, err := os.Stat(left); err != nil {
			t.Error(err)
		}
		again := s.h.push(t, url, s.h.b+":refs/heads/x")
		if again.ok || !strings.Contains(again.said, "File exists") {
			t.Errorf("the next push: %v", again)
		}
		if err := os.Remove(left); err != nil {
			t.Fatal(err)
		}
		if again := s.h.push(t, url, s.h.b+":refs/heads/x"); !again.ok {
			t.Errorf("without the lock file: %v", again)
		}
	})
}

func TestGitKilledInCommittedHasUpdatedTheRef(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		s, url := gitStage(t, g, transports[0])
		stop := gateIn(t, s.repo, "reference-transaction")
		stop.shut("committed")
		p, told := s.h.startPush(t, url, s.h.a+":refs/heads/x")
		kill9(t, stop.waits("committed"))
		if got := told(p); got.ok {
			t.Errorf("the client was told %v", got)
		}
		stop.open("committed")
		eventually(t, "the end of the orphaned hook", func() error {
			if !slices.Contains(stop.passed(), "committed") {
				return errors.New("it has not passed")
			}
			return nil
		})
		sameRefs(t, "after the crash", g.refs(t, s.repo), map[string]string{"refs/heads/x": s.h.a})
	})
}

func TestAnIOErrorInTheMiddleOfAnAtomicPushLeavesHalfOfItUntold(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		s, url := gitStage(t, g, transports[0])
		stop := gateIn(t, s.repo, "reference-transaction")
		stop.shut("prepared")
		p, told := s.h.startPush(t, url, "--atomic", s.h.a+":refs/heads/x", s.h.a+":refs/heads/y")
		stop.waits("prepared")
		obstruct(t, s.repo, "refs/heads/y")
		stop.open("prepared")
		if got := told(p); got.ok || len(got.accepted()) > 0 {
			t.Errorf("the client was told %v", got)
		}
		sameRefs(t, "after the error", g.refs(t, s.repo), map[string]string{"refs/heads/x": s.h.a})
		if calls := fmt.Sprint(stop.calls()); calls != "[prepared]" {
			t.Errorf("the hook was called in %s", calls)
		}
	})
}

// obstruct makes it impossible to write a loose ref: there is a directory in its
// place, which is not empty.
func obstruct(t testing.TB, repo, ref string) {
	t.Helper()
	dir := filepath.Join(repo, ref)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "obstacle.lock"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGitWaitsForALockedRefOnlyIfToldTo(t *testing.T) {
	for wait, ok := range map[string]bool{"100": false, "300000": true} {
		t.Run(wait, func(t *testing.T) {
			eachGit(t, func(t *testing.T, g *git) {
				s, url := gitStage(t, g, transports[0])
				g.run(t, s.repo, "config", "core.filesRefLockTimeout", wait)
				stop := gateIn(t, s.repo, "reference-transaction")
				stop.shut("prepared")
				received := filepath.Join(shortDir(t), "received")
				writeScript(t, filepath.Join(s.repo, "hooks/pre-receive"), fmt.Sprintf("cat >/dev/null\necho x >>%q\n", received))
				first, toldFirst := s.h.startPush(t, url, s.h.a+":refs/heads/x")
				stop.waits("prepared")
				second, toldSecond := s.h.startPush(t, url, s.h.a+":refs/heads/x")
				eventually(t, "the second push, which has not seen the ref", func() error {
					text, err := os.ReadFile(received)
					if err == nil && string(text) != "x\nx\n" {
						err = fmt.Errorf("received: %q", text)
					}
					return err
				})
				if !ok {
					// Newer versions call the hook even so.
					eventually(t, "the second push", func() error {
						select {
						case <-second.ended:
							return nil
						default:
						}
						if calls := stop.calls(); len(calls) < 2 {
							return fmt.Errorf("the hook was called in %v", calls)
						}
						return nil
					})
				}
				stop.open("prepared")
				if p := toldFirst(first); !p.ok {
					t.Errorf("the first push: %v", p)
				}
				// With enough time it gets the lock, and finds that the ref exists.
				p := toldSecond(second)
				if p.ok || strings.Contains(p.said, "Unable to create") == ok {
					t.Errorf("the second push: %v", p)
				}
			})
		})
	}
}
