package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

type options struct {
	run    []string
	rounds int
	d      time.Duration
	json   bool
	plot   string
	dir    string
}

const helpText = `Bench measures refdb beside what its databases can do at best, and beside its peers. It starts the servers
that it needs (PostgreSQL's programs must be installed), prints a table per workload, and removes what it made.

  %s [flags]

%s
In each round every contestant runs once, each time beginning with the next one. A table shows medians of
the rounds, the least and the most, and the ratio to the baseline: the median of the rounds' ratios.
Progress goes to stderr.

`

// parseOptions reads the command line. The error of -h is flag.ErrHelp.
func parseOptions(args []string, messages io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(messages)
	run := f.String("run", "", "`workloads` to run, such as W1,W4 (default: all)")
	output := f.String("o", "table", "`format`: table, or json with every round's values")
	f.IntVar(&o.rounds, "rounds", 5, "how many `rounds`")
	f.DurationVar(&o.d, "d", time.Second, "how long one measurement of a rate takes")
	f.StringVar(&o.plot, "plot", "", "draw throughput against workers into the `file` (.svg or .png)")
	f.StringVar(&o.dir, "dir", os.TempDir(), "a `directory` on the disk to measure, where the servers keep their data")
	f.Usage = func() {
		fmt.Fprintf(messages, helpText, "go run .", workloadList())
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.json = *output == "json"
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: see -h", f.Arg(0))
	case *output != "table" && *output != "json":
		return o, fmt.Errorf("unknown format %q: table or json", *output)
	case o.rounds < 1:
		return o, fmt.Errorf("%d rounds: at least 1 is needed", o.rounds)
	case o.d <= 0:
		return o, fmt.Errorf("-d %s: it must be positive", o.d)
	}
	var err error
	o.run, err = selection(*run)
	return o, err
}

// selection returns the IDs of the listed workloads, in their own order.
func selection(list string) ([]string, error) {
	var known, wanted []string
	for _, w := range workloads() {
		known = append(known, w.id)
	}
	for name := range strings.SplitSeq(strings.ToUpper(list), ",") {
		name = strings.TrimSpace(name)
		if name != "" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("no workload %q: there are %s", name, strings.Join(known, ", "))
		}
		wanted = append(wanted, name)
	}
	if list == "" {
		return known, nil
	}
	return slices.DeleteFunc(known, func(id string) bool { return !slices.Contains(wanted, id) }), nil
}

func workloadList() string {
	var b strings.Builder
	for _, w := range workloads() {
		fmt.Fprintf(&b, "  %-7s %s\n", w.id, w.about)
	}
	return b.String()
}

// wants reports whether the workload was selected.
func (o options) wants(id string) bool { return slices.Contains(o.run, id) }
