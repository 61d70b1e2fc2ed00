package gerrit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestAProcessListensUnlessItsSocketsSayOtherwise(t *testing.T) {
	t.Parallel()
	const table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 7 1 0 100 0 0 10 0\n" +
		"   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 8 1 0 100 0 0 10 0\n"
	for name, test := range map[string]struct {
		links   []string // that the process has open
		noLink  bool     // one of them can't be read, as those of a process with capabilities
		noTable bool     // the sockets of the machine can't be read
		listens bool
	}{
		"nothing open":               {},
		"a listening socket":         {links: []string{"/dev/null", "socket:[7]"}, listens: true},
		"a connection":               {links: []string{"socket:[8]"}},
		"a socket of another kind":   {links: []string{"socket:[9]"}},
		"a link that can't be read":  {links: []string{"/dev/null"}, noLink: true, listens: true},
		"a table that can't be read": {links: []string{"/dev/null"}, noTable: true, listens: true},
	} {
		proc := t.TempDir()
		for _, dir := range []string{"fd", "net"} {
			if err := os.Mkdir(filepath.Join(proc, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for i, link := range test.links {
			if err := os.Symlink(link, filepath.Join(proc, "fd", string(rune('0'+i)))); err != nil {
				t.Fatal(err)
			}
		}
		if test.noLink {
			if err := os.WriteFile(filepath.Join(proc, "fd", "9"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if test.noTable {
			err = os.Mkdir(filepath.Join(proc, "net/tcp"), 0o755)
		} else {
			err = os.WriteFile(filepath.Join(proc, "net/tcp"), []byte(table), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := listens(proc); got != test.listens {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !listens(filepath.Join(t.TempDir(), "ended")) {
		t.Error("a process that can't be looked at")
	}
}

func TestWhenAHolderStarted(t *testing.T) {
	t.Parallel()
	before := time.Now()
	child := exec.Command("sleep", "1h")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	got, err := Holder{PID: child.Process.Pid}.Started()
	// The kernel counts from a whole second.
	if err != nil || got.Before(before.Add(-2*time.Second)) || got.After(time.Now()) {
		t.Errorf("%v, %v; it started after %v", got, err, before)
	}
	if _, err := (Holder{}).Started(); err == nil {
		t.Error("a holder that can't be seen from here has a start")
	}
}
