//go:build linux

package sites

import (
	"path/filepath"
	"testing"
	"time"
)

// dump writes a dump of a running server's database.
func (s *postgresServer) dump() {
	s.t.Helper()
	err := s.Run(s.t.Context(), "pg_dump", "-Fc", "-f", s.dumped(), "-d", "host="+s.Dir()+" user=postgres dbname=refdb")
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *postgresServer) dumped() string { return filepath.Join(s.Dir(), "dump") }

// restore makes the database anew from the dump.
func (s *postgresServer) restore(args ...string) {
	s.t.Helper()
	err := s.Run(s.t.Context(), "pg_restore", append(args, "-d", "host="+s.Dir()+" user=postgres dbname=refdb", s.dumped())...)
	if err != nil {
		s.t.Fatal(err)
	}
}

// The server is the same, and so is the database's name. The table of the admission is another, which is noticed at once.
func TestADumpThatIsRestoredTakesNoPushesBeforeItIsRecovered(t *testing.T) {
	for name, args := range map[string][]string{"in one transaction": {"--single-transaction"}, "step by step": nil} {
		t.Run(name, func(t *testing.T) {
			often(t, func(t *testing.T, pause pausing) (took time.Duration, early int) {
				s := newPostgres(t)
				b := newBed(t, func(testing.TB) database { return s })
				b.pushes()
				s.dump()
				b.pushes()
				if err := s.Exec(t.Context(), "postgres", "DROP DATABASE refdb WITH (FORCE)"); err != nil {
					t.Fatal(err)
				}
				b.rewind()
				if err := s.Exec(t.Context(), "postgres", "CREATE DATABASE refdb"); err != nil {
					t.Fatal(err)
				}
				s.restore(args...)
				took = b.halts()
				b.reads()
				early = b.recovers()
				b.finish()
				stays(t, s.Postgres)
				return took, early
			})
		})
	}
}
