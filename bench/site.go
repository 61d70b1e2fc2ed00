package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
)

// A site is a site's daemon and its repositories, in a directory of its own.
type site struct {
	name, dir string
	programs  string // directory of refdbctl and the hook
	url       string // of the database
	daemonURL string // the daemon's way to it; "" if it is the same
	daemon    *exec.Cmd
}

// buildPrograms builds refdbctl and the hook, as they are released, and
// returns their directory.
func buildPrograms(ctx context.Context, dir string) (string, error) {
	module, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/globalrefdb/globalrefdb")
	if err != nil {
		return "", fmt.Errorf("find the product's module: %w: run this in the bench directory", err)
	}
	bin := filepath.Join(dir, "bin")
	_, err = output(ctx, filepath.Join(module, "scripts/build.sh"), bin)
	return bin, err
}

// needSites makes ready what workloads with sites need: PostgreSQL, the programs, and git, whose version it returns.
func (s *servers) needSites(ctx context.Context) (programs, gitVersion string, err error) {
	if err := s.needPostgres(ctx); err != nil {
		return "", "", err
	}
	if programs, err = buildPrograms(ctx, s.dir); err != nil {
		return "", "", err
	}
	gitVersion, err = git(ctx, "version")
	return programs, gitVersion, err
}

// A storing says what the database keeps of a new project's objects.
type storing string

const (
	storeNone storing = "none"
	storeAll  storing = "all"
)

func (s *site) root() string               { return filepath.Join(s.dir, "root") }
func (s *site) repo(project string) string { return filepath.Join(s.root(), project+".git") }
func (s *site) socket() string             { return filepath.Join(s.dir, "socket") }
func (s *site) log() string                { return filepath.Join(s.dir, "log") }
func (s *site) config() string             { return filepath.Join(s.dir, "site.config") }

// configure writes the site's configuration. The setting of the store is read by enable.
func (s *site) configure(store storing) error {
	text := fmt.Sprintf("[site]\n\tname = %s\n\troot = %s\n\tsocket = %s\n\tstate = %s\n\tstore = %s\n\tdurability = database\n",
		s.name, s.root(), s.socket(), s.dir, store)
	return os.WriteFile(s.config(), []byte(text), 0o600)
}

// command returns a refdbctl site command.
func (s *site) command(ctx context.Context, url, command string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.programs, "refdbctl"), append([]string{"site", command, "--config", s.config()}, args...)...)
	cmd.Env = append(os.Environ(), "REFDB_URL="+url)
	return cmd
}

// start starts the daemon. It does not wait until the daemon is ready.
func (s *site) start(ctx context.Context) error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	url := s.daemonURL
	if url == "" {
		url = s.url
	}
	daemon := s.command(ctx, url, "serve")
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		return err
	}
	s.daemon = daemon
	return nil
}

// ready waits until the daemon lets pushes through.
func (s *site) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		status, err := client.Query(ctx, s.socket())
		if err == nil && status.Presence && status.Database {
			return nil
		}
		select {
		case <-ctx.Done():
			return s.explain(fmt.Errorf("the daemon of site %s is not ready: %w", s.name, errors.Join(err, ctx.Err())))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// explain adds what the daemon has said to an error.
func (s *site) explain(err error) error {
	if err == nil {
		return nil
	}
	said, _ := os.ReadFile(s.log())
	if text := strings.TrimSpace(string(said)); text != "" {
		err = fmt.Errorf("%w; the daemon of site %s said: %s", err, s.name, text)
	}
	return err
}

// enable puts repositories under guard: one, or "--all".
func (s *site) enable(ctx context.Context, repo string) error {
	if said, err := s.command(ctx, s.url, "enable", "--new", repo).CombinedOutput(); err != nil {
		return s.explain(fmt.Errorf("refdbctl site enable: %w: %s", err, said))
	}
	return nil
}

// stop ends the daemon, if it runs.
func (s *site) stop() {
	if s.daemon == nil {
		return
	}
	_ = s.daemon.Process.Signal(os.Interrupt)
	_ = s.daemon.Wait()
	s.daemon = nil
}
