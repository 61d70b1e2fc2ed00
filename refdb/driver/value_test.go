package driver

import (
	"errors"
	"strings"
	"testing"
)

func TestValues(t *testing.T) {
	id := Value(strings.Repeat("a1", 20))
	for _, c := range []struct {
		v                         Value
		absent, deleted, objectID bool
	}{
		{Unknown, true, false, false},
		{Deleted, true, true, true},
		{Deleted256, true, true, true},
		{id, false, false, true},
		{id + id[:24], false, false, true},
		{id[:39], false, false, false},
		{Value(strings.ToUpper(string(id))), false, false, false},
		{"ref: refs/heads/main", false, false, false},
		{"42", false, false, false},
		{"0", false, false, false},
	} {
		if c.v.IsAbsent() != c.absent || c.v.IsDeleted() != c.deleted || c.v.IsObjectID() != c.objectID {
			t.Errorf("%q: absent %v, deleted %v, object ID %v", c.v, c.v.IsAbsent(), c.v.IsDeleted(), c.v.IsObjectID())
		}
	}
}

func TestEquivalentValues(t *testing.T) {
	id := Value(strings.Repeat("a1", 20))
	for _, c := range []struct {
		a, b Value
		want bool
	}{
		{id, id, true}, {Unknown, Deleted, true}, {Deleted, Deleted256, true}, {id, Deleted, false}, {id, id + id[:24], false}, {"42", "43", false},
	} {
		if c.a.Equivalent(c.b) != c.want || c.b.Equivalent(c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
}

func TestAbbreviatedValues(t *testing.T) {
	id := Value(strings.Repeat("a1", 20))
	for v, want := range map[Value]string{Unknown: "nothing", Deleted256: "deleted", id: "a1a1a1a", "ref: HEAD\n": `"ref: HEAD\n"`} {
		if got := v.Abbrev(); got != want {
			t.Errorf("%q is abbreviated as %s, want %s", v, got, want)
		}
	}
}

func TestValuesThatCannotBeStored(t *testing.T) {
	for _, v := range []Value{"", "1", "ref: HEAD", "ref: refs/heads/main", Value(strings.Repeat("x", MaxValueBytes))} {
		if err := CheckValue(v); err != nil {
			t.Errorf("CheckValue(%.20q) = %v", v, err)
		}
	}
	for _, v := range []Value{"\xff", "a\x00b", "ref: ", "ref: main", "ref: refs/heads/a b", Value(strings.Repeat("x", MaxValueBytes+1))} {
		if err := CheckValue(v); !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckValue(%.20q) = %v, want ErrInvalid", v, err)
		}
	}
}

func FuzzCheckValue(f *testing.F) {
	f.Add("ref: refs/heads/main")
	f.Add("0000000000000000000000000000000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		v := Value(s)
		if target, ok := v.Target(); CheckValue(v) == nil && ok && CheckRef(target) != nil {
			t.Fatalf("%q points to an invalid ref and is accepted", s)
		}
		if v.IsDeleted() && !v.IsAbsent() {
			t.Fatalf("%q is deleted and not absent", s)
		}
	})
}
