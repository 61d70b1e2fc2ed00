package gerrit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/gerrit"
)

// source makes a copy of a first site's directory, with files of the given modes.
func source(tb testing.TB, modes map[string]fs.FileMode) gerrit.Source {
	tb.Helper()
	files := map[string]string{"etc/gerrit.config": "[gerrit]\n\tserverId = s\n\tinstallDbModule = " + gerrit.DbModule + "\n"}
	for name := range modes {
		files[name] = "x"
	}
	dir := directory(tb, files)
	for name, mode := range modes {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			tb.Fatal(err)
		}
	}
	s, err := gerrit.OpenSource(tb.Context(), dir)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// What is secret is its owner's alone, however the copy was made.
func TestSecretsAreCopiedForTheirOwnerAlone(t *testing.T) {
	t.Parallel()
	want := map[string]fs.FileMode{
		"etc/secure.config": 0o600, "etc/replication.secure.config": 0o600, "etc/ssh_host_rsa_key": 0o600, "etc/ssh_host_ed25519_key": 0o600,
		"etc/tls/site.key": 0o600, "etc/tls/site.pem": 0o600, "etc/keystore": 0o600, "etc/keystore.p12": 0o600, "etc/other.jks": 0o600,
		"etc/.ssh/id_ed25519": 0o600, "etc/SECURE.CONFIG": 0o600,
		"etc/ssh_host_rsa_key.pub": 0o644, "etc/.ssh/id_ed25519.pub": 0o644, "etc/replication.config": 0o644, "plugins/x.jar": 0o644,
	}
	modes := map[string]fs.FileMode{}
	for name := range want {
		modes[name] = 0o644
	}
	to := t.TempDir()
	if _, err := source(t, modes).CopyTo(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	for name, mode := range want {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
}

// A copy that is of another group than its original is not for that group.
func TestACopyIsReadableByNobodyWhoCouldNotReadTheOriginal(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another group: who may read a copy of such a file is not looked at")
	}
	modes := map[string]fs.FileMode{"etc/a.config": 0o640, "etc/b.config": 0o664, "etc/c.config": 0o400, "etc/d.config": 0o640}
	from := source(t, modes)
	for _, name := range []string{"etc/a.config", "etc/b.config"} {
		if err := os.Chown(filepath.Join(from.Path, name), 0, 4321); err != nil {
			t.Fatal(err)
		}
	}
	to := t.TempDir()
	if _, err := from.CopyTo(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"etc/a.config": 0o600, "etc/b.config": 0o644, "etc/c.config": 0o400, "etc/d.config": 0o640} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, mode)
		}
	}
}

// The directories of the copy are no more open than their originals, whatever the umask.
func TestDirectoriesAreCopiedWithTheirMode(t *testing.T) {
	t.Parallel()
	from := source(t, map[string]fs.FileMode{"etc/private/x": 0o644})
	if err := os.Chmod(filepath.Join(from.Path, "etc/private"), 0o500); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if _, err := from.CopyTo(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(to, "etc/private")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
