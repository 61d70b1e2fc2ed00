package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/migrations"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	w := &world{env: map[string]string{}} // no database is needed
	if out := w.do(t, "version"); !strings.Contains(out, cli.Version()) || !strings.Contains(out, runtime.Version()) {
		t.Errorf("%s", out)
	}
	got := decode[struct {
		Version, Go, Platform string
		Schema                uint
	}](t, w.do(t, "version", "-o", "json"))
	if got.Version != cli.Version() || got.Go != runtime.Version() || got.Platform != runtime.GOOS+"/"+runtime.GOARCH || got.Schema != migrations.Latest(migrations.SQLite) {
		t.Errorf("%+v", got)
	}
}
