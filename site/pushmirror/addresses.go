package pushmirror

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// addressesFor is how long the addresses of all projects are cached.
const addressesFor = 10 * time.Second

// An addresses finds projects that share a repository at a mirror.
type addresses struct {
	mu    sync.Mutex
	at    time.Time
	users map[string][]user
}

// A user is a project that is pushed to an address.
type user struct{ mirror, project string }

// folded returns what addresses of the same repository have in common: servers such as GitHub ignore case.
func folded(address string) string {
	return strings.TrimSuffix(strings.ToLower(strings.TrimRight(address, "/")), ".git")
}

// checkAddress returns an error if another project is pushed to the same repository as the project.
func (t *term) checkAddress(project string) error {
	a := &t.addresses
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.at) > addressesFor {
		a.at, a.users = time.Now(), map[string][]user{}
		for _, p := range t.Projects.All() {
			if p.Mode == config.Removed {
				continue
			}
			for _, m := range t.State.Config().PushMirrors {
				if name := p.Project.Project; m.Pushes(name) {
					address := folded(m.Address(name))
					a.users[address] = append(a.users[address], user{m.Name, name})
				}
			}
		}
	}
	for _, u := range a.users[folded(t.config.Address(project))] {
		if u.project != project {
			return fmt.Errorf("project %s has the same address at mirror %s: neither is pushed: use {project} in the URL, or leave one out", u.project, u.mirror)
		}
	}
	return nil
}
