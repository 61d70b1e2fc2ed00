package driver

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRefNames(t *testing.T) {
	valid := []string{
		"HEAD", "FETCH_HEAD", "refs/heads/main", "refs/heads/o'brien", `refs/heads/a"b;--`, "refs/heads/größe/日本/🎉",
		"refs/heads/%_", "refs/changes/01/1/meta", "refs/heads/@", "refs/heads/-x", "refs/heads/a.b", "refs/heads/a@b{",
		"refs/multi-site/version", "refs/heads/" + strings.Repeat("x", 489),
	}
	for _, name := range valid {
		if err := CheckRef(name); err != nil {
			t.Errorf("CheckRef(%q) = %v, want nil", name, err)
		}
	}
	invalid := []string{
		"", "main", "head", "HEAD1", "/refs/heads/main", "refs/heads/", "refs//heads", "refs/heads/a b", "refs/heads/a..b",
		"refs/heads/a~1", "refs/heads/a^", "refs/heads/a:b", "refs/heads/a?", "refs/heads/a*", "refs/heads/[a", `refs/heads/a\b`,
		"refs/heads/.a", "refs/.heads/a", "refs/heads/a.lock", "refs/a.lock/b", "refs/heads/a.", "refs/heads/a@{b",
		"refs/heads/a\x00b", "refs/heads/a\nb", "refs/heads/a\x7fb", "refs/heads/\xff", "refs/heads/" + strings.Repeat("x", MaxNameBytes),
	}
	for _, name := range invalid {
		if err := CheckRef(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckRef(%q) = %v, want ErrInvalid", name, err)
		}
	}
}

func TestNamesExcludeEachOtherIfOneIsADirectoryOfTheOther(t *testing.T) {
	for _, names := range [][2]string{{"refs/heads/t", "refs/heads/t/x"}, {"refs/heads/t", "refs/heads/t/x/y"}, {"A", "A/x"}} {
		if !Excludes(names[0], names[1]) || !Excludes(names[1], names[0]) {
			t.Errorf("%q don't exclude each other", names)
		}
	}
	for _, names := range [][2]string{{"refs/heads/t", "refs/heads/t"}, {"refs/heads/t", "refs/heads/tx"}, {"refs/heads/t", "refs/heads/t-x/y"}, {"refs/heads/t", "refs/heads/T/x"}} {
		if Excludes(names[0], names[1]) || Excludes(names[1], names[0]) {
			t.Errorf("%q exclude each other", names)
		}
	}
}

func TestRefsAboveAreThoseThatARefCanHave(t *testing.T) {
	for ref, want := range map[string][]string{
		"refs/heads/t/x": {"refs/heads/t", "refs/heads"}, "refs/heads": nil, "HEAD": nil, "A/b/c": {"A/b", "A"}, "refs/heads/t./x": {"refs/heads"},
	} {
		if got := slices.Collect(RefsAbove(ref)); !slices.Equal(got, want) {
			t.Errorf("above %s: %q, want %q", ref, got, want)
		}
	}
}

func TestAPartOfAPlaceableNameHasRoomForTheLockFile(t *testing.T) {
	for ref, ok := range map[string]bool{
		"refs/heads/" + strings.Repeat("x", MaxPartBytes):          true,
		"refs/heads/" + strings.Repeat("x", MaxPartBytes+1):        false,
		"refs/" + strings.Repeat("x", MaxPartBytes+1) + "/y":       false,
		"refs/heads/" + strings.Repeat("é", MaxPartBytes/2+1):      false,
		"refs/heads/" + strings.Repeat("long/", 300) + "end":       true,
		"refs/heads/" + strings.Repeat("x", MaxPartBytes) + "/y/z": true,
	} {
		if err := CheckPlaceable(ref); (err == nil) != ok || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func TestProjectNames(t *testing.T) {
	for _, name := range []string{"p", "a/b", "All-Projects", "o'brien", "a%_b", `a\b`, "RECLAIM", "reclaim_x", "größe", " "} {
		if err := CheckProject(name); err != nil {
			t.Errorf("CheckProject(%q) = %v, want nil", name, err)
		}
	}
	for _, name := range []string{"", "a\x00", "\xff", "RECLAIM_", "RECLAIM_p_2026", strings.Repeat("x", MaxNameBytes+1)} {
		if err := CheckProject(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("CheckProject(%q) = %v, want ErrInvalid", name, err)
		}
	}
}

func TestProjectAndRefShareALimit(t *testing.T) {
	ref := "refs/heads/" + strings.Repeat("r", 989)
	if err := CheckKey(strings.Repeat("p", MaxNameBytes-len(ref)), ref); err != nil {
		t.Errorf("%d bytes: %v", MaxNameBytes, err)
	}
	if err := CheckKey(strings.Repeat("p", MaxNameBytes-len(ref)+1), ref); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d bytes: %v, want ErrInvalid", MaxNameBytes+1, err)
	}
}

// FuzzCheckRef compares CheckRef with git itself: both must accept the same names, except for names
// that only CheckRef's additional rules refuse.
func FuzzCheckRef(f *testing.F) {
	git, err := exec.LookPath("git")
	if err != nil {
		f.Fatal("git is needed: ", err)
	}
	for _, seed := range []string{"refs/heads/main", "HEAD", "refs/heads/a..b", "a/.b", "a/b.lock", "a/b.", "@", "a/@{", "-/a", "ä/ö", "a/b\x7f", "a//b", "a/*"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if strings.Contains(name, "\x00") || len(name) > 1000 || !utf8.ValidString(name) {
			if CheckRef(name) == nil && (strings.Contains(name, "\x00") || !utf8.ValidString(name)) {
				t.Fatalf("CheckRef(%q) = nil", name)
			}
			return
		}
		ours := CheckRef(name) == nil
		if strings.HasPrefix(name, "-") {
			return // git's command takes it for an option
		}
		if !strings.Contains(name, "/") {
			if ours != (name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "") {
				t.Fatalf("CheckRef(%q): %v", name, ours)
			}
			return
		}
		gits := exec.Command(git, "check-ref-format", name).Run() == nil
		if ours != gits {
			t.Fatalf("%q: git says %v, CheckRef %v", name, gits, ours)
		}
	})
}
