package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// fewBytes is how little free space is worth a warning.
	fewBytes = 64 << 20

	// longLog is how large a log is worth one: much larger than where it is trimmed.
	longLog = 8 * logStep
)

// finding is what one check has to say. It found fault if there is a remedy.
type finding struct{ detail, remedy string }

// Diagnose implements refdb.Diagnoser. It reads the whole file, and changes nothing.
func (d *Driver) Diagnose(ctx context.Context) ([]refdb.Diagnosis, error) {
	checks := []struct {
		name string
		look func(context.Context) (finding, error)
	}{
		{"version", d.checkVersion},
		{"journal_mode", d.checkJournal},
		{"synchronous", d.checkSynchronous},
		{"quick_check", d.checkIntegrity},
		{"write", d.checkWrite},
		{"log", d.checkLog},
		{"place", d.checkPlace},
	}
	var report []refdb.Diagnosis
	for _, check := range checks {
		f, err := check.look(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("diagnose: %w", ctx.Err())
		}
		if err != nil {
			f = finding{"failed", err.Error()}
		}
		report = append(report, f.diagnosis(check.name))
	}
	if disk, ok := diskOf(filepath.Dir(d.path)); ok {
		report = append(report, disk.checkKind().diagnosis("file system"), disk.checkSpace().diagnosis("free space"))
	}
	return report, nil
}

func (f finding) diagnosis(name string) refdb.Diagnosis {
	if f.remedy == "" {
		return refdb.Diagnosis{Name: name, OK: true, Detail: f.detail}
	}
	return refdb.Diagnosis{Name: name, Detail: f.detail + ": " + f.remedy}
}

func (d *Driver) checkVersion(ctx context.Context) (f finding, err error) {
	err = d.read(ctx, "read the version", func(c *conn) error {
		return c.query(ctx, func(r row) { f.detail = "SQLite " + r.text(0) }, `SELECT sqlite_version()`)
	})
	return f, err
}

func (d *Driver) checkJournal(ctx context.Context) (f finding, err error) {
	f.detail, err = d.setting(ctx, "journal_mode")
	if f.detail != "wal" {
		f.remedy = "another program changed it; stop all that use the file and start again"
	}
	return f, err
}

func (d *Driver) checkSynchronous(ctx context.Context) (f finding, err error) {
	level, err := d.setting(ctx, "synchronous")
	if level == "2" {
		return finding{detail: "full"}, err
	}
	return finding{"not full", "a power failure may undo the last transactions; leave synchronous out of the address"}, err
}

func (d *Driver) checkIntegrity(ctx context.Context) (f finding, err error) {
	f.detail, err = d.setting(ctx, "quick_check(1)")
	if f.detail != "ok" {
		f.remedy = "stop all that use the file and restore it from a backup"
	}
	return f, err
}

// errTakenBack rolls back what was written to see whether that is possible.
var errTakenBack = errors.New("taken back")

func (d *Driver) checkWrite(ctx context.Context) (finding, error) {
	err := d.write(ctx, "write a row", 1, func(t *tx) error {
		if _, err := t.exec(`UPDATE token_mark SET mark = mark + 1`); err != nil {
			return err
		}
		return errTakenBack
	})
	if errors.Is(err, errTakenBack) {
		err = nil
	}
	return finding{detail: "possible: wrote a row, and took it back"}, err
}

func (d *Driver) checkLog(context.Context) (finding, error) {
	size, err := d.files.standing()
	f := finding{detail: fmt.Sprintf("%.1f MiB", float64(size)/(1<<20))}
	if size > longLog {
		f.remedy = fmt.Sprintf("a program that reads without a pause keeps it from shrinking; "+
			"find it with `fuser -v %s` and end it, and the next writes shorten the log", d.files.paths[1])
	}
	return f, err
}

func (d *Driver) checkPlace(ctx context.Context) (f finding, err error) {
	recorded, err := d.place.recorded(ctx)
	switch {
	case err != nil:
	case d.place.id == unrecorded:
		f.detail = "not recorded on this system: open the file under one path only"
	case recorded == unrecorded:
		f = finding{"not recorded, so that the file may be opened under two paths", "run `refdbctl migrate up` while nothing uses the file"}
	default:
		f.detail = "recorded"
	}
	return f, err
}

func (d *Driver) setting(ctx context.Context, name string) (value string, err error) {
	err = d.read(ctx, "read the setting "+name, func(c *conn) (err error) {
		value, err = pragma(ctx, c, name)
		return err
	})
	return value, err
}

// disk is the file system that a file is on.
type disk struct {
	network string // its kind, if that is one that other machines have access to
	free    uint64 // bytes
}

func (d disk) checkKind() finding {
	if d.network != "" {
		return finding{d.network, "locks don't exclude other machines there; move the file to a local file system"}
	}
	return finding{detail: "local"}
}

func (d disk) checkSpace() finding {
	f := finding{detail: fmt.Sprintf("%d MiB", d.free>>20)}
	if d.free < fewBytes {
		f.remedy = "free some"
	}
	return f
}
