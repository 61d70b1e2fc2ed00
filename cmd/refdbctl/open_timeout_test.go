package main

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// silentServer takes connections, and says nothing.
func silentServer(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
		}
		for _, c := range open {
			c.Close()
		}
	}()
	tb.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

func TestADatabaseThatSaysNothingIsNamed(t *testing.T) {
	address := silentServer(t)
	t.Setenv("SPANNER_EMULATOR_HOST", address) // the client library's own
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for _, c := range []struct{ url, says string }{
		{"postgres://u:" + secret + "@" + address + "/d", "no answer from the database within --timeout 300ms: postgres://u:xxxxx@" + address + "/d)"},
		{"spanner://projects/p/instances/i/databases/d", "within --timeout 300ms: spanner://projects/p/instances/i/databases/d, " +
			"the emulator at " + address + " that SPANNER_EMULATOR_HOST names)"},
	} {
		w := &world{env: map[string]string{"REFDB_URL": c.url, "SPANNER_EMULATOR_HOST": address}}
		for _, args := range []string{"locks list", "migrate version", "migrate up", "migrate down --dry-run"} {
			waiting.Go(func() {
				r := w.run(t, append(strings.Fields(args), "--timeout=300ms")...)
				r.is(t, exit.Failed, c.says)
				r.isOneLine(t)
				if strings.Contains(r.err, secret) {
					t.Errorf("the password is printed: %s", r.err)
				}
			})
		}
	}
}

func TestATimeoutIsNotNegative(t *testing.T) {
	t.Parallel()
	r := newWorld(t).run(t, "locks", "list", "--timeout=-1s")
	r.is(t, exit.Misuse, "--timeout -1s")
	r.isOneLine(t)
}

// The address is cut at the / of the password: that must be said.
func TestAPasswordWithASlashGetsAHint(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"pa/" + secret, "12/" + secret, "/" + secret} {
		w := &world{env: map[string]string{"REFDB_URL": "postgres://u:" + password + "@127.0.0.1:1/d"}}
		for _, args := range []string{"locks list", "migrate version"} {
			r := w.run(t, strings.Fields(args)...)
			r.is(t, exit.Misuse, "%2F for a /")
			if strings.Contains(r.err, secret) {
				t.Errorf("the password is printed: %s", r.err)
			}
		}
	}
}
