//go:build linux

package sites

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// A pushedTag is a tag that both sites were asked to create at once, with different values.
type pushedTag struct {
	name   string
	begin  time.Time
	end    time.Time
	takers []*server // those that told the client it is accepted
	guard  *server   // the one whose value the database has
}

// tagPushes push a new tag to both sites at once, again and again.
type tagPushes struct {
	c    *cluster
	mu   sync.Mutex
	done []pushedTag
	late bool // a site has refused a tag because the rules have just changed
}

// value returns the value of a site's tags. The other site's is different.
func (p *tagPushes) value(s *server) string {
	if s == p.c.eu {
		return p.c.h.b
	}
	return p.c.h.c
}

func (p *tagPushes) run(stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		tag := pushedTag{name: fmt.Sprintf("refs/tags/n%d", n), begin: time.Now()}
		told := map[*server]func() push{}
		for _, s := range []*server{p.c.eu, p.c.us} {
			told[s] = s.startPush(p.value(s) + ":" + tag.name)
		}
		late := false
		for _, s := range []*server{p.c.eu, p.c.us} {
			told := told[s]()
			if told.ok {
				tag.takers = append(tag.takers, s)
			}
			late = late || strings.Contains(told.said, "have just changed")
		}
		tag.end = time.Now()
		p.mu.Lock()
		p.late = p.late || late
		p.done = append(p.done, tag)
		p.mu.Unlock()
	}
}

// since returns the tags whose pushes began after a time, with what the database has of them.
func (p *tagPushes) since(begin time.Time) (tags []pushedTag) {
	p.c.Helper()
	p.mu.Lock()
	for _, tag := range p.done {
		if tag.begin.After(begin) {
			tags = append(tags, tag)
		}
	}
	p.mu.Unlock()
	global := p.c.global(project)
	for i := range tags {
		for _, s := range []*server{p.c.eu, p.c.us} {
			if global[tags[i].name] == p.value(s) {
				tags[i].guard = s
			}
		}
	}
	return tags
}

// accepts waits until each site has accepted a tag under guard, or without it.
func (p *tagPushes) accepts(guarded bool) {
	p.c.Helper()
	begin := time.Now()
	for _, s := range []*server{p.c.eu, p.c.us} {
		eventually(p.c, fmt.Sprintf("a tag at %s, guarded: %v", s.name, guarded), func() error {
			for _, tag := range p.since(begin) {
				for _, taker := range tag.takers {
					if taker == s && (tag.guard == s) == guarded {
						return nil
					}
				}
			}
			return errPending
		})
	}
}

// changed checks a change of the rules: once one site follows the new rules, no site follows the old ones.
func (p *tagPushes) changed(begin time.Time, guarded bool) {
	p.c.Helper()
	var effect time.Time
	for _, tag := range p.since(begin) {
		if tag.guard != nil && len(tag.takers) > 1 {
			p.c.Errorf("%s is guarded at %s, and both sites have accepted it with different values, %.1f s after the change",
				tag.name, tag.guard.name, tag.begin.Sub(begin).Seconds())
		}
		for _, s := range tag.takers {
			switch isNew := (tag.guard == s) == guarded; {
			case isNew && effect.IsZero():
				effect = tag.end
				p.c.Logf("%s goes by the new rules %.1f s after the change", s.name, tag.end.Sub(begin).Seconds())
			case !isNew && !effect.IsZero() && tag.begin.After(effect):
				p.c.Errorf("%s is accepted at %s by the old rules, %.1f s after a site went by the new ones",
					tag.name, s.name, tag.begin.Sub(effect).Seconds())
			}
		}
	}
}

// The rules of a project change while two sites serve. One of them does not learn of it at first. Once one site
// follows the new rules, the other accepts no tag by the old ones.
func TestRulesChangeAtAllSitesBeforeAnyGoesByThem(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: rules that change under pushes, half a minute; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0].within(wire.DefaultLimit)
	var way *slowLink
	c := newCluster(t, g, design{
		// Sites know for how long a request may go on by the old rules.
		limits:   usualLimits,
		database: onPostgres, extra: "[guard]\n\tref = refs/heads/*",
		url: func(site string, d database) string {
			if site != "eu" {
				return d.URL()
			}
			way = newSlowLink(t, d.URL(), 0)
			return way.url
		},
	})
	tags := &tagPushes{c: c}
	stop := make(chan struct{})
	var running sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); running.Wait() })
	defer end()
	running.Go(func() { tags.run(stop) })
	for _, s := range []*server{c.eu, c.us} { // branches are guarded throughout
		running.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					s.push("+" + []string{c.h.b, c.h.c}[n%2] + ":refs/heads/" + s.name)
				}
			}
		})
	}
	tags.accepts(false)

	way.Cut()
	guarded := time.Now()
	c.us.must("project", "set", project, "--ref", "refs/heads/*", "--ref", "refs/tags/*", "--reason", "a test")
	// On a busy machine that may take longer than eu's rules are valid: then it refuses all pushes in the end.
	eventually(t, "us refuses tags because the rules have changed", func() error {
		tags.mu.Lock()
		defer tags.mu.Unlock()
		if !tags.late {
			return errPending
		}
		return nil
	})
	way.restore(t)
	tags.accepts(true)
	tags.changed(guarded, true)

	free := time.Now()
	c.us.must("project", "set", project, "--ref", "refs/heads/*", "--reason", "a test")
	tags.accepts(false)
	tags.changed(free, false)
	end()

	c.settled()
	for _, s := range []*server{c.eu, c.us} {
		s.soon("+" + c.h.a + ":refs/heads/" + s.name)
	}
	for _, s := range []*server{c.eu, c.us} {
		s.limits = patientLimits
		s.configure("")
		s.sync()
		for _, of := range []string{"eu", "us"} {
			if ref := "refs/heads/" + of; s.refs(project)[ref] != c.h.a || c.global(project)[ref] != c.h.a {
				t.Errorf("%s at %s: %s, in the database %s, want %s", ref, s.name, s.refs(project)[ref], c.global(project)[ref], c.h.a)
			}
		}
	}
}
