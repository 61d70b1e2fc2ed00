package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// A checkResult is what a check has found, in numbers.
type checkResult struct {
	complete                                     bool
	repositories, checked, notCompared, repaired int
	left                                         map[string]int // findings that remain, by code
	took                                         time.Duration
}

// checkTextfile fails if the metrics of a check could not be written to file: a check may take hours.
func checkTextfile(file string) error {
	if !strings.HasSuffix(file, ".prom") {
		return exit.Usage(fmt.Sprintf("--textfile %s: node_exporter reads only files whose names end in .prom", file))
	}
	probe, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file))
	if err != nil {
		return fmt.Errorf("--textfile %s can't be written by the daemon's user, as which this command runs: %w", file, err)
	}
	probe.Close()
	return os.Remove(probe.Name())
}

// writeTextfile replaces file with the metrics of a check, in one step. They hold no names.
func writeTextfile(file string, r checkResult, now time.Time) error {
	registry := prometheus.NewRegistry()
	gauge := func(name, help string, value float64) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "refdb_check_" + name, Help: help})
		g.Set(value)
		registry.MustRegister(g)
	}
	findings := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "refdb_check_findings", Help: "Findings of the last check that remain, by code. A code without findings has no sample.",
	}, []string{"code"})
	registry.MustRegister(findings)
	total := 0
	for code, n := range r.left {
		findings.WithLabelValues(code).Set(float64(n))
		total += n
	}
	ok := 0.0
	if r.complete && total == 0 {
		ok = 1
	}
	gauge("ok", "1 if the last check was complete and left no finding.", ok)
	gauge("complete", "1 if the last check compared all repositories with the database.", map[bool]float64{true: 1}[r.complete])
	gauge("repaired_findings", "Findings that the last check repaired.", float64(r.repaired))
	gauge("repositories", "Repositories to check.", float64(r.repositories))
	gauge("checked_repositories", "Repositories that the last check has reached.", float64(r.checked))
	gauge("unguarded_repositories", "Repositories that the last check did not compare, because nothing guards them.", float64(r.notCompared))
	gauge("duration_seconds", "Duration of the last check, in seconds.", r.took.Seconds())
	gauge("timestamp_seconds", "When the last check ended, by this machine's clock, in seconds since 1970.", float64(now.UnixMilli())/1000)
	if err := prometheus.WriteToTextfile(file, registry); err != nil {
		return fmt.Errorf("writing the metrics of the check: %w", err)
	}
	return nil
}
