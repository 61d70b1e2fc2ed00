package postgres_test

import (
	"context"
	"fmt"
	"math/big"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
)

// documentedBlocks returns the blocks of code of one language in a section of docs/OPERATIONS.md.
func documentedBlocks(t *testing.T, section, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n### "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n### ")
	for {
		_, block, found := strings.Cut(rest, "\n```"+language+"\n")
		if !found {
			return blocks
		}
		block, rest, _ = strings.Cut(block, "\n```\n")
		blocks = append(blocks, block)
	}
}

// The certificates are made and installed as documented, at a real server, and then renewed under a
// running driver.
func TestTheDocumentedCertificatesAreRequiredAndRenewed(t *testing.T) {
	t.Parallel()
	s, err := testserver.StartPostgres(t.Context(), testserver.PostgresOptions{
		Network: testserver.Loopback, Durability: testserver.NoFsync, Password: "admin",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	execute := func(database string, sql ...string) {
		t.Helper()
		if err := s.Exec(t.Context(), database, sql...); err != nil {
			t.Fatal(err)
		}
	}
	execute("postgres", `CREATE DATABASE refdb`, `CREATE ROLE refdb_site LOGIN PASSWORD 'fisch'`)
	if err := schema.Up(t.Context(), s.URL("refdb")); err != nil {
		t.Fatal(err)
	}
	execute("refdb", `GRANT SELECT ON ALL TABLES IN SCHEMA public TO refdb_site`)

	const section = "A CA, and certificates for the server and the sites"
	made, etc := t.TempDir(), t.TempDir()
	data, err := os.Stat(s.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	owner := data.Sys().(*syscall.Stat_t)
	here := strings.NewReplacer("db.example.com", "localhost", "/var/lib/postgresql/15/main/", s.DataDir(), "/etc/refdb/", etc+"/",
		"-o postgres -g postgres", fmt.Sprintf("-o %d -g %d", owner.Uid, owner.Gid), "-o git -g git ", "")
	shell := func(commands string) {
		t.Helper()
		cmd := osexec.Command("/bin/sh", "-eu", "-c", here.Replace(commands))
		cmd.Dir = made
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", commands, err, out)
		}
	}
	commands := documentedBlocks(t, section, "sh")
	statements, texts := documentedBlocks(t, section, "sql"), documentedBlocks(t, section, "text")
	if len(commands) != 3 || len(statements) != 1 || len(texts) != 2 {
		t.Fatalf("found %d, %d and %d blocks", len(commands), len(statements), len(texts))
	}
	for _, c := range commands {
		shell(c)
	}
	hba := texts[0] + "\nhost all postgres 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(s.DataDir(), "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		t.Fatal(err)
	}
	configure := func(lines string) {
		t.Helper()
		execute("postgres", strings.Split(strings.TrimSuffix(lines, ";"), ";\n")...)
	}
	configure(statements[0])
	_, port, _ := strings.Cut(s.Address(), ":")
	address := strings.NewReplacer("localhost", "localhost:"+port, "…", "fisch").Replace(here.Replace(texts[1])) +
		"&sslmode=verify-full" // the default, if the server is on another machine

	var d *postgres.Driver
	var refused error
	eventually(t, "a connection with certificates", func() bool { // the server is reading its files
		d, refused = postgres.Open(t.Context(), address)
		return refused == nil
	})
	t.Cleanup(func() { d.Close() })
	found, err := d.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Name == "encryption" && (!f.OK || f.Note) {
			t.Errorf("the doctor finds %+v", f)
		}
	}

	shell(strings.ReplaceAll(strings.ReplaceAll(issuing(commands[0], "site"), "refdb_site", "refdb_other"), "site.", "other."))
	with := func(replacements ...string) string { return strings.NewReplacer(replacements...).Replace(address) }
	for _, row := range []struct{ name, address, says string }{
		{"no certificate", with("&sslcert="+etc+"/site.pem&sslkey="+etc+"/site.key", ""), "connection requires a valid client certificate"},
		{"another role's certificate", with(etc+"/site.", made+"/other."), "the server refused the user or the password"},
		{"another password", with("fisch", "falsch"), "the server refused the user or the password"},
		{"a server whose name is not in its certificate", with("localhost", "127.0.0.1"), "sslmode=verify-ca"},
		{"another CA", with(etc+"/ca.pem", made+"/other.pem"), "name the certificate file of the CA"},
		{"no TLS", with("verify-full", "disable"), "check pg_hba.conf"},
		{"no such file", with("site.pem", "nowhere.pem"), "unable to read cert"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for name, err := range openers(t.Context(), row.address) {
				if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), row.says) {
					t.Errorf("%s: %v; want one line that says %q", name, err, row.says)
				}
			}
		})
	}

	// Certificates are renewed.
	d.ReadAddress(func(context.Context) (string, error) { return address, nil })
	serial := func() *big.Int {
		t.Helper()
		execute("postgres", `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'refdb_site'`)
		n := new(big.Int)
		err := d.RoundTrip(t.Context(), func(rows pgx.Rows) error {
			var text string
			rows.Next()
			if err := rows.Scan(&text); err != nil {
				return err
			}
			n.SetString(text, 10)
			return nil
		}, `SELECT client_serial::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()`)
		if err != nil || n.Sign() == 0 {
			t.Fatalf("the connection's certificate is number %v, %v", n, err)
		}
		return n
	}
	first := serial()
	shell(issuing(commands[0], "site"))
	shell("cp site.pem " + etc) // without its key
	if got := serial(); got.Cmp(first) != 0 {
		t.Errorf("with a certificate that does not match the key, a connection has number %v, not %v", got, first)
	}
	shell(commands[2])
	second := serial()
	if second.Cmp(first) == 0 {
		t.Error("new connections have the earlier certificate")
	}
	shell(issuing(commands[0], "server"))
	shell(commands[1])
	configure("SELECT pg_reload_conf();")
	if got := serial(); got.Cmp(second) != 0 {
		t.Errorf("after a change of the server's certificate, a connection has number %v, not %v", got, second)
	}
}

// issuing returns the commands that make a certificate.
func issuing(commands, name string) string {
	var kept []string
	for line := range strings.SplitSeq(strings.ReplaceAll(commands, "\\\n", ""), "\n") {
		if strings.Contains(line, "-out "+name+".") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
