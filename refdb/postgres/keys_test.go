package postgres

import (
	"slices"
	"testing"
)

// Processes of all versions have to agree on these.
func TestKeysNeverChange(t *testing.T) {
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
	keys := lockRefs("p", refs).Args[0].([]int64)
	if len(keys) != 5 || keys[0] != int64(keyOf("p", "")) || !slices.IsSorted(keys[1:]) {
		t.Errorf("got %v", keys)
	}
	for n, sql := range map[int]string{maxKeys: lockRefsSQL, maxKeys + 1: lockProjectSQL} {
		if got := lockRefs("p", make([]string, n)).SQL; got != sql {
			t.Errorf("%d refs: %s", n, got)
		}
	}
}
