package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite/internal/filesystem"
)

const (
	// minFree is the free space below which Diagnose reports a fault.
	minFree = 64 << 20

	// maxLog is the size of the log above which Diagnose reports a fault. It is much larger than
	// the size at which the log is truncated.
	maxLog = 8 * logStep
)

// finding is the result of one check. If it has a remedy, it is a fault.
type finding struct{ detail, remedy string }

// Diagnose implements driver.Diagnoser. It reads the whole file, and changes nothing.
func (d *Driver) Diagnose(ctx context.Context) ([]driver.Diagnosis, error) {
	checks := []struct {
		name string
		look func(context.Context) (finding, error)
	}{
		{"version", d.checkVersion},
		{"journal_mode", d.checkJournal},
		{"synchronous", d.checkSynchronous},
		{"quick_check", d.checkIntegrity},
		{"tables", d.checkTables},
		{"write", d.checkWrite},
		{"log", d.checkLog},
		{"place", d.checkLocation},
	}
	var report []driver.Diagnosis
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
	if disk, ok := filesystem.DiskOf(filepath.Dir(d.path)); ok {
		report = append(report, checkKind(disk).diagnosis("file system"), checkSpace(disk).diagnosis("free space"))
	}
	return report, nil
}

func (f finding) diagnosis(name string) driver.Diagnosis {
	if f.remedy == "" {
		return driver.Diagnosis{Name: name, OK: true, Detail: f.detail}
	}
	return driver.Diagnosis{Name: name, Detail: f.detail + ": " + f.remedy}
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
		f.remedy = "another program changed it; stop all programs that use the file, then start them again"
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
		f.remedy = "stop all programs that use the file, and restore it from a backup"
	}
	return f, err
}

func (d *Driver) checkTables(ctx context.Context) (f finding, err error) {
	err = d.read(ctx, "inspect the tables", func(c *conn) error {
		found, err := catalogue(ctx, c)
		if err != nil {
			return err
		}
		version, err := schemaVersion(ctx, c)
		if err != nil {
			return err
		}
		detail, ok := found.Examine(version)
		if !ok {
			f = finding{"changed", detail}
			return nil
		}
		f = finding{detail: detail}
		var missing []string
		err = c.query(ctx, func(r row) { missing = append(missing, r.text(0)) }, migrations.RowsSQL(migrations.SQLite))
		if len(missing) > 0 {
			f = finding{"changed", migrations.MissingRows(migrations.SQLite, missing)}
		}
		return err
	})
	return f, err
}

// errRollback rolls back the write that tests whether writing is possible.
var errRollback = errors.New("rolled back")

func (d *Driver) checkWrite(ctx context.Context) (finding, error) {
	err := d.writeAnyway(ctx, "write a row", 1, func(t *tx) error {
		if _, err := t.exec(`UPDATE token_mark SET mark = mark + 1`); err != nil {
			return err
		}
		return errRollback
	})
	if errors.Is(err, errRollback) {
		err = nil
	}
	return finding{detail: "possible: wrote a row, and rolled it back"}, err
}

func (d *Driver) checkLog(context.Context) (finding, error) {
	size, err := d.files.verify()
	f := finding{detail: fmt.Sprintf("%.1f MiB", float64(size)/(1<<20))}
	if size > maxLog {
		f.remedy = fmt.Sprintf("a program that reads without a pause keeps it from shrinking; "+
			"find it with `fuser -v %s` and end it, and the next writes shorten the log", d.files.paths[1])
	}
	return f, err
}

func (d *Driver) checkLocation(ctx context.Context) (f finding, err error) {
	recorded, err := d.location.recorded(ctx)
	switch {
	case err != nil:
	case d.location.id == unrecorded:
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

func checkKind(d filesystem.Disk) finding {
	if d.Network != "" {
		return finding{d.Network, "locks don't exclude other machines there; move the file to a local file system"}
	}
	return finding{detail: "local"}
}

func checkSpace(d filesystem.Disk) finding {
	f := finding{detail: fmt.Sprintf("%d MiB", d.Free>>20)}
	if d.Free < minFree {
		f.remedy = "free some"
	}
	return f
}
