// Package site runs a site's daemon, as it is released.
package site

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
	"github.com/globalrefdb/globalrefdb/site/client"
)

// A Site is a site's daemon and its repositories, in a directory of its own.
type Site struct {
	Name, Dir string
	Programs  string // directory of refdbctl and the hook
	URL       string // of the database
	DaemonURL string // the daemon's way to it; "" if it is the same
	Daemon    *exec.Cmd
}

// Build builds refdbctl and the hook, as they are released, and
// returns their directory.
func Build(ctx context.Context, dir string) (string, error) {
	module, err := command.Output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/globalrefdb/globalrefdb")
	if err != nil {
		return "", fmt.Errorf("find the product's module: %w: run this in the bench directory", err)
	}
	bin := filepath.Join(dir, "bin")
	_, err = command.Output(ctx, filepath.Join(module, "scripts/build.sh"), bin)
	return bin, err
}

// A Storing says what the database keeps of a new project's objects.
type Storing string

const (
	StoreNone Storing = "none"
	StoreAll  Storing = "all"
)

func (s *Site) root() string   { return filepath.Join(s.Dir, "root") }
func (s *Site) socket() string { return filepath.Join(s.Dir, "socket") }
func (s *Site) log() string    { return filepath.Join(s.Dir, "log") }
func (s *Site) config() string { return filepath.Join(s.Dir, "site.config") }

// Repo returns the path of a project's repository.
func (s *Site) Repo(project string) string { return filepath.Join(s.root(), project+".git") }

// Configure writes the site's configuration. The setting of the store is read by Enable.
func (s *Site) Configure(store Storing) error {
	text := fmt.Sprintf("[site]\n\tname = %s\n\troot = %s\n\tsocket = %s\n\tstate = %s\n\tstore = %s\n\tdurability = database\n",
		s.Name, s.root(), s.socket(), s.Dir, store)
	return os.WriteFile(s.config(), []byte(text), 0o600)
}

// Command returns a refdbctl site command.
func (s *Site) Command(ctx context.Context, url, command string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Programs, "refdbctl"), append([]string{"site", command, "--config", s.config()}, args...)...)
	cmd.Env = append(os.Environ(), "REFDB_URL="+url)
	return cmd
}

// Start starts the daemon. It does not wait until the daemon is ready.
func (s *Site) Start(ctx context.Context) error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	url := s.DaemonURL
	if url == "" {
		url = s.URL
	}
	daemon := s.Command(ctx, url, "serve")
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		return err
	}
	s.Daemon = daemon
	return nil
}

// Ready waits until the daemon lets pushes through.
func (s *Site) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		status, err := client.Query(ctx, s.socket())
		if err == nil && status.Presence && status.Database {
			return nil
		}
		select {
		case <-ctx.Done():
			return s.Explain(fmt.Errorf("the daemon of site %s is not ready: %w", s.Name, errors.Join(err, ctx.Err())))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Explain adds what the daemon has said to an error.
func (s *Site) Explain(err error) error {
	if err == nil {
		return nil
	}
	said, _ := os.ReadFile(s.log())
	if text := strings.TrimSpace(string(said)); text != "" {
		err = fmt.Errorf("%w; the daemon of site %s said: %s", err, s.Name, text)
	}
	return err
}

// Enable puts repositories of new projects under guard: one, or "--all".
func (s *Site) Enable(ctx context.Context, repo string) error { return s.enable(ctx, "--new", repo) }

// EnableCopies puts repositories under guard whose projects another site has: one, or "--all".
func (s *Site) EnableCopies(ctx context.Context, repo string) error {
	return s.enable(ctx, "--copy", repo)
}

func (s *Site) enable(ctx context.Context, claim, repo string) error {
	if said, err := s.Command(ctx, s.URL, "enable", claim, repo).CombinedOutput(); err != nil {
		return s.Explain(fmt.Errorf("refdbctl site enable: %w: %s", err, said))
	}
	return nil
}

// Stop ends the daemon, if it runs.
func (s *Site) Stop() {
	if s.Daemon == nil {
		return
	}
	_ = s.Daemon.Process.Signal(syscall.SIGTERM) // an interrupt is ignored where a script has started us in its background
	_ = s.Daemon.Wait()
	s.Daemon = nil
}
