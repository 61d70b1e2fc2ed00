package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/internal/addressfile"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestStandardInputIsReadAgainIfItIsAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "database")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("postgres://u:one@h/d\n")
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	a := load(t, in)
	d := a.addressOf()
	for _, row := range []struct {
		name   string
		change func()
		want   string // the address, or a part of the error
	}{
		{"the same", func() {}, "postgres://u:one@h/d"},
		{"written into", func() { write("postgres://u:two@h/d") }, "postgres://u:two@h/d"},
		{"longer than before", func() { write("\npostgres://u:three-is-longer@h/d\n") }, "postgres://u:three-is-longer@h/d"},
		{"empty", func() { write("") }, "is empty: it should hold a URL"},
		{"replaced", func() {
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			os.Remove(path + ".old")
			write("postgres://u:four@h/d")
		}, "was removed or replaced: restart the program"},
	} {
		row.change()
		got, err := d.read(t.Context())
		if err != nil {
			got = err.Error()
		}
		if got != row.want && (err == nil || !strings.Contains(got, row.want)) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

func TestWhatCameThroughAPipeStays(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("postgres://u:one@h/d\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for name, in := range map[string]io.Reader{"a pipe": r, "another reader": strings.NewReader("postgres://u:one@h/d")} {
		d := load(t, in).addressOf()
		for range 2 {
			if got, err := d.read(t.Context()); got != "postgres://u:one@h/d" || err != nil {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

func TestANamedPipeIsReadOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "database")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	a := load(t, strings.NewReader("postgres://u:one@h/d"))
	a.addressFile = path
	d := a.addressOf()
	for range 2 {
		if got, err := d.read(t.Context()); got != "postgres://u:one@h/d" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// A named pipe without a writer simulates a file system that hangs.
func TestReadsOfAHangingAddressFileAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "database")
	if err := os.WriteFile(path, []byte("postgres://u:one@h/d"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := load(t, strings.NewReader("postgres://u:one@h/d"))
	a.addressFile = path
	d := a.addressOf()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.read(ended); err == nil || !strings.Contains(err.Error(), path+" takes too long") {
		t.Error(err)
	}
	d.mu.Lock()
	hangs := d.reading
	d.mu.Unlock()
	if _, err := d.read(t.Context()); err == nil || !strings.Contains(err.Error(), path+" takes too long") {
		t.Error("the next waits for the same:", err)
	}
	pipe, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.WriteString("postgres://u:two@h/d"); err != nil {
		t.Error(err)
	}
	pipe.Close()
	<-hangs.ended
	if got := d.now(); got != "postgres://u:two@h/d" {
		t.Errorf("once it goes on: %q", got)
	}
}

func TestMessagesShowNeitherTheLatestPasswordNorThoseBefore(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	a := load(t, strings.NewReader("postgres://u:first-one@h/d"))
	a.Messages = &out
	d := a.addressOf()
	d.note("postgres://u:second-one@h/d")
	d.note("postgres://u:third-one@h/d")
	if _, err := io.WriteString(a.Messages, "first-one second-one third-one"); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "xxxxx xxxxx xxxxx" {
		t.Error(got)
	}
}

func TestARefusedAddressIsNotOpenedAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := load(t, strings.NewReader("postgres://u:one@h/d"))
		opened := 0
		a.OpenDriver = func(context.Context, string) (refdb.Driver, error) {
			opened++
			return nil, fmt.Errorf("%w: FATAL", driver.ErrCredentials)
		}
		d := a.addressOf()
		start := time.Now()
		var at []time.Duration
		for time.Since(start) < 3*time.Minute {
			before := opened
			if _, err := d.open(t.Context()); !errors.Is(err, driver.ErrCredentials) {
				t.Fatal(err)
			}
			if opened > before {
				at = append(at, time.Since(start)/time.Second)
			}
			time.Sleep(time.Second)
		}
		if want := []time.Duration{0, 5, 15, 35, 75, 135}; !slices.Equal(at, want) {
			t.Errorf("opened after %d seconds, want %d", at, want)
		}
		a.URL = "postgres://u:two@h/d"
		for _, again := range []func(){func() {}, func() { d.reread(t.Context()) }} {
			again()
			before := opened
			d.open(t.Context())
			d.open(t.Context())
			if opened != before+1 {
				t.Errorf("opened %d times, want once", opened-before)
			}
		}
	})
}

func TestCredentialsMayChangeOnlyIfAFileHasThem(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]bool{
		"postgres://u:one@h/d":                         false,
		"postgres://u@h/d?sslcert=/c&sslkey=/k":        true,
		"postgres://u:one@h/d?sslrootcert=/etc/ca.pem": true,
	} {
		if got := load(t, strings.NewReader(url)).addressOf().mayChange(); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}

// load returns an App that has read the database's address from in.
func load(t *testing.T, in io.Reader) *App {
	t.Helper()
	a := &App{Run: cli.New(cli.Streams{In: in, Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }}), addressFile: addressfile.StandardInput}
	var err error
	if a.URL, err = addressfile.Read(a.addressFile, a.In); err != nil {
		t.Fatal(err)
	}
	return a
}
