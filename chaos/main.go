// Chaos tests that the library keeps its promises while everything around it
// fails. Processes work as sites on a shared database. A nemesis injects faults,
// one after the other: it kills, freezes and cuts off the sites and the database.
// Then it checks what the sites wrote into their journals.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// siteRole, as the first argument, makes this program a site.
const siteRole = "site"

const (
	statusViolated = 1
	statusFailed   = 2 // it could not run
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == siteRole {
		if err := runSite(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "site:", err)
			os.Exit(1)
		}
		return
	}
	status, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		status = statusFailed
	}
	os.Exit(status)
}

// options are what the command line says.
type options struct {
	duration time.Duration
	seed     uint64
	kinds    []scenarioKind
	only     *regexp.Regexp
	dir      string
}

func start() (status int, err error) {
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if os.Getenv(isolatedVariable) == "" {
		return isolate()
	}
	if err := mountProc(); err != nil {
		return 0, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, o)
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.DurationVar(&o.duration, "d", 10*time.Minute, "how long the faults go on, on all databases together")
	f.Uint64Var(&o.seed, "seed", 0, "what decides on the faults and the sites' work; 0: random")
	names := f.String("db", strings.Join(kindNames(), ","), "the databases")
	f.StringVar(&o.dir, "dir", "", "directory for journals and logs, which is kept; default: a temporary one, kept if there are violations")
	only := f.String("fault", "", "only faults whose names match this regular expression")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, err
	}
	for _, name := range strings.Split(*names, ",") {
		i := slices.IndexFunc(scenarioKinds, func(k scenarioKind) bool { return k.name == name })
		if i < 0 {
			return o, fmt.Errorf("no such database: %q; there are %s", name, strings.Join(kindNames(), ", "))
		}
		o.kinds = append(o.kinds, scenarioKinds[i])
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument: %s", f.Arg(0))
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1 << 32)
	}
	return o, nil
}

// run runs the scenarios and prints a summary.
func run(ctx context.Context, o options) (status int, err error) {
	unix.Umask(0o022)
	dir, keep := o.dir, o.dir != ""
	if keep {
		dir, err = filepath.Abs(dir)
	} else {
		// Not in TMPDIR: the path of a socket ends at about 100 bytes, and PostgreSQL's user must get there.
		dir, err = os.MkdirTemp("/tmp", "chaos-")
	}
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755))
	}
	if err != nil {
		return 0, err
	}
	events, err := os.Create(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		return 0, err
	}
	defer events.Close()
	r := newRecord(io.MultiWriter(os.Stdout, events))
	r.emit(event{Event: "begin", Detail: fmt.Sprintf("seed %d, directory %s", o.seed, dir)})
	err = runScenarios(ctx, o, dir, r)
	err = errors.Join(err, r.sum.print(os.Stderr, o.seed), r.err)
	if r.sum.violations() > 0 {
		status, keep = statusViolated, true
	}
	if keep || err != nil {
		fmt.Fprintln(os.Stderr, "journals and logs are in", dir)
		return status, err
	}
	return status, os.RemoveAll(dir)
}
