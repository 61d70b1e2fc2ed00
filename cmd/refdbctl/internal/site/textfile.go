package site

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

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
	var text strings.Builder
	head := func(name, help string) {
		fmt.Fprintf(&text, "# HELP refdb_check_%s %s\n# TYPE refdb_check_%[1]s gauge\n", name, help)
	}
	gauge := func(name, help string, value float64) {
		head(name, help)
		fmt.Fprintf(&text, "refdb_check_%s %s\n", name, strconv.FormatFloat(value, 'g', -1, 64))
	}
	total := 0
	head("findings", "Findings of the last check that remain, by code. A code without findings has no sample.")
	for _, code := range slices.Sorted(maps.Keys(r.left)) {
		fmt.Fprintf(&text, "refdb_check_findings{code=%q} %d\n", code, r.left[code])
		total += r.left[code]
	}
	number := map[bool]float64{true: 1}
	gauge("ok", "1 if the last check was complete and left no finding.", number[r.complete && total == 0])
	gauge("complete", "1 if the last check compared all repositories with the database.", number[r.complete])
	gauge("repaired_findings", "Findings that the last check repaired.", float64(r.repaired))
	gauge("repositories", "Repositories to check.", float64(r.repositories))
	gauge("checked_repositories", "Repositories that the last check has reached.", float64(r.checked))
	gauge("unguarded_repositories", "Repositories that the last check did not compare, because nothing guards them.", float64(r.notCompared))
	gauge("duration_seconds", "Duration of the last check, in seconds.", r.took.Seconds())
	gauge("timestamp_seconds", "When the last check ended, by this machine's clock, in seconds since 1970.", float64(now.UnixMilli())/1000)
	if err := replaceFile(file, text.String()); err != nil {
		return fmt.Errorf("writing the metrics of the check: %w", err)
	}
	return nil
}

// replaceFile replaces file with text that everybody may read. After a crash of the machine file has
// the old text or the new one. Others may be able to write to the directory: the mode is set through
// the open file, because a path may by then be a link to another file.
func replaceFile(file, text string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err = f.WriteString(text); err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
