package postgres

import (
	"slices"
	"strings"
	"testing"
)

// Processes of all versions have to agree on these.
func TestKeysAndShardsNeverChange(t *testing.T) {
	for _, row := range []struct {
		project, ref string
		key          key
	}{
		{"a", "", -6285999736695548},
		{"a", "refs/heads/main", -3397994850682450710},
		{"a/b", "refs/heads/é", -1360148513125430879},
	} {
		if k := keyOf(row.project, row.ref); k != row.key {
			t.Errorf("%s %s has key %d", row.project, row.ref, k)
		}
	}
}

func TestKeysAreLockedInTheirOrderAfterTheProjects(t *testing.T) {
	refs := []string{"refs/a", "refs/b", "refs/c", "refs/d"}
	work := roundTrip{}.lockRefs("p", refs)
	keys := work.statements[0].args[0].([]int64)
	if len(keys) != 5 || keys[0] != int64(keyOf("p", "")) || !slices.IsSorted(keys[1:]) {
		t.Errorf("got %v", keys)
	}
	for n, sql := range map[int]string{maxKeys: lockRefsSQL, maxKeys + 1: lockProjectSQL} {
		if work := (roundTrip{}).lockRefs("p", make([]string, n)); work.statements[0].sql != sql {
			t.Errorf("%d refs: %s", n, work.statements[0].sql)
		}
	}
}

func TestPrefixEndIsTheLeastTextAboveAllThatStartWithIt(t *testing.T) {
	for prefix, want := range map[string]string{
		"a":                     "b",
		"refs/heads/":           "refs/heads0",
		"\x7f":                  "\u0080",
		"é":                     "ê",
		"\ud7ff":                "\ue000",
		"\uffff":                "\U00010000",
		"a\U0010ffff":           "b",
		"a\U0010ffff\U0010ffff": "b",
		"a\ud7ff\U0010ffff":     "a\ue000",
		"":                      "",
		"\U0010ffff":            "",
		"RECLAIM_":              "RECLAIM`",
	} {
		got, ok := prefixEnd(prefix)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", prefix, got, ok)
		}
	}
}

func TestADoctorSaysWhatToDo(t *testing.T) {
	healthy := setup{version: "15.1", number: 150001, fsync: true, fullPages: true, synchronous: "on", isolation: readCommitted,
		autovacuum: true, room: 97, clients: 10, hosts: 1, connectsUpTo: 16}
	for _, row := range []struct {
		name   string
		change func(*setup)
		sick   string // the name of the diagnosis that is not OK, if any
	}{
		{"all is well", func(*setup) {}, ""},
		{"old", func(s *setup) { s.number = 120022 }, "server version"},
		{"no fsync", func(s *setup) { s.fsync = false }, "fsync"},
		{"torn pages", func(s *setup) { s.fullPages = false }, "full_page_writes"},
		{"asynchronous commits", func(s *setup) { s.synchronous = "off" }, "synchronous_commit"},
		{"local commits, alone", func(s *setup) { s.synchronous = "local" }, ""},
		{"local commits, with a standby", func(s *setup) { s.synchronous, s.standbyNames = "local", "s1" }, "synchronous_commit"},
		{"a synchronous standby", func(s *setup) { s.standbyNames, s.standbys, s.readWrite = "s1", 1, true }, ""},
		{"an asynchronous standby", func(s *setup) { s.standbys, s.readWrite = 1, true }, "synchronous standby"},
		{"two servers in the URL", func(s *setup) { s.hosts = 2 }, "target_session_attrs"},
		{"serializable", func(s *setup) { s.isolation = "serializable" }, "default isolation"},
		{"read-only", func(s *setup) { s.readOnly = true }, "read-write"},
		{"no autovacuum", func(s *setup) { s.autovacuum = false }, "autovacuum"},
		{"crowded", func(s *setup) { s.clients = 90 }, "connections"},
		{"a pooler", func(s *setup) { s.pooled = true }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthy
			row.change(&s)
			var sick []string
			for _, d := range s.diagnoses() {
				if d.Detail == "" || strings.Contains(d.Detail, "\n") {
					t.Errorf("%s: %q is no line", d.Name, d.Detail)
				}
				if !d.OK {
					sick = append(sick, d.Name)
					if !strings.Contains(d.Detail, ": ") {
						t.Errorf("%s: %q does not say what to do", d.Name, d.Detail)
					}
				}
			}
			if strings.Join(sick, ",") != row.sick {
				t.Errorf("not OK: %q, want %q", sick, row.sick)
			}
		})
	}
}
