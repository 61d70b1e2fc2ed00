package postgres

import (
	"slices"
	"testing"
)

// Processes of all versions have to compute the same keys.
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

// Two requests that lock a key shared and then exclusively deadlock: each has to wait for the end
// of the other's shared lock.
func TestASharedKeyIsLockedOnce(t *testing.T) {
	for name, row := range map[string]struct {
		exclusive, shared, keys []int64
		isShared                []bool
	}{
		"keys of both kinds":                   {[]int64{5, -1}, []int64{7, 2}, []int64{-1, 2, 5, 7}, []bool{false, true, false, true}},
		"a ref above another":                  {[]int64{2, 5}, []int64{2, 1}, []int64{1, 2, 5}, []bool{true, false, false}},
		"two refs with the same key":           {[]int64{5, 5}, []int64{1}, []int64{1, 5}, []bool{true, false}},
		"two names above with the same key":    {[]int64{5}, []int64{1, 1}, []int64{1, 5}, []bool{true, false}},
		"a name above with the key of a ref":   {[]int64{5, 9}, []int64{9, 1}, []int64{1, 5, 9}, []bool{true, false, false}},
		"all keys the same":                    {[]int64{3, 3}, []int64{3, 3}, []int64{3}, []bool{false}},
		"names above, and no ref to be locked": {nil, []int64{3, 1}, []int64{1, 3}, []bool{true, true}},
	} {
		if keys, isShared := orderedKeys(row.exclusive, row.shared); !slices.Equal(keys, row.keys) || !slices.Equal(isShared, row.isShared) {
			t.Errorf("%s: %v, shared: %v; want %v, %v", name, keys, isShared, row.keys, row.isShared)
		}
	}
}

func TestACreationLocksItsRefExclusivelyAndItsParentsShared(t *testing.T) {
	refs, above := []string{"refs/heads/t", "refs/heads/t/x"}, []string{"refs/heads", "refs/heads/t"}
	s := lockCreations("p", refs, above)
	keys, shared := s.Args[0].([]int64), s.Args[1].([]bool)
	if len(keys) != 4 || keys[0] != int64(keyOf("p", "")) || !shared[0] || !slices.IsSorted(keys[1:]) {
		t.Fatalf("got %v, %v", keys, shared)
	}
	for ref, want := range map[string]bool{"refs/heads": true, "refs/heads/t": false, "refs/heads/t/x": false} {
		i := slices.Index(keys, int64(keyOf("p", ref)))
		if i < 0 || shared[i] != want {
			t.Errorf("%s: at %d of %v, shared: %v", ref, i, keys, shared)
		}
	}
	if got := lockCreations("p", refs, nil).SQL; got != lockRefsSQL {
		t.Errorf("nothing is created: %s", got)
	}
	if got := lockCreations("p", make([]string, maxKeys), above).SQL; got != lockProjectSQL {
		t.Errorf("many refs: %s", got)
	}
}
