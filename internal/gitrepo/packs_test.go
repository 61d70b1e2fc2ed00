package gitrepo_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// commitOn makes a commit with a file that names it.
func commitOn(tb testing.TB, dir, name string, parents ...string) string {
	tb.Helper()
	write(tb, name+"\n", dir, "content")
	blob := git(tb, dir, "hash-object", "-w", "content")
	tree := gitWith(tb, dir, "100644 blob "+blob+"\tcontent\n", "mktree")
	args := []string{"-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", name, tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return git(tb, dir, args...)
}

// chain makes n commits, each on the one before, and returns the last. It does what commitOn does n times, with as many
// processes as for one.
func chain(tb testing.TB, dir string, n int, parent string) string {
	tb.Helper()
	objects, files := tb.TempDir(), map[string][]string{}
	object := func(kind, text string) string {
		path := filepath.Join(objects, fmt.Sprint(kind, len(files[kind])))
		write(tb, text, path)
		files[kind] = append(files[kind], path)
		return fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kind, len(text), text)))
	}
	for i := range n {
		blob, err := hex.DecodeString(object("blob", fmt.Sprintln(i)))
		if err != nil {
			tb.Fatal(err)
		}
		tree := object("tree", "100644 content\x00"+string(blob))
		parent = object("commit", fmt.Sprintf("tree %s\nparent %s\nauthor n <e> 1 +0000\ncommitter n <e> 1 +0000\n\n%d\n", tree, parent, i))
	}
	for _, kind := range []string{"blob", "tree", "commit"} {
		gitWith(tb, dir, strings.Join(files[kind], "\n")+"\n", "hash-object", "-t", kind, "-w", "--no-filters", "--stdin-paths")
	}
	return parent
}

func packOf(tb testing.TB, repo *gitrepo.Repo, tips, bases []string) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := repo.Pack(tb.Context(), &b, tips, bases); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestAPackHasWhatTipsReachBesideBases(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			from, first := newRepo(t, "--bare", "--object-format="+format)
			second := commitOn(t, from, "second", first)
			third := commitOn(t, from, "third", second)
			source := openDir(t, from)
			to := t.TempDir()
			git(t, to, "init", "--quiet", "--bare", "--object-format="+format)
			target := openDir(t, to)
			if err := unpack(t, target, packOf(t, source, []string{first}, nil)); err != nil {
				t.Fatal(err)
			}

			for _, step := range []struct {
				tips, bases []string
				objects     int
			}{
				{[]string{second}, []string{first}, 3},
				{[]string{third}, []string{second}, 3},
				{[]string{third}, []string{third}, 0},
			} {
				pack := packOf(t, source, step.tips, step.bases)
				n, err := gitrepo.PackObjects(pack)
				if err != nil || n != step.objects {
					t.Fatalf("%d objects, %v, want %d", n, err, step.objects)
				}
				if n == 0 {
					continue
				}
				if err := unpack(t, target, pack); err != nil {
					t.Fatal(err)
				}
			}
			if whole, err := target.IsConnected(t.Context(), []string{third}, []string{second}); err != nil || !whole {
				t.Errorf("third beside second: %v, %v", whole, err)
			}
		})
	}
}

// Git itself stores objects whose parents are missing.
func TestWhatIsMissingIsFoundByWhole(t *testing.T) {
	t.Parallel()
	from, first := newRepo(t, "--bare")
	second := commitOn(t, from, "second", first)
	third := commitOn(t, from, "third", second)
	to := t.TempDir()
	git(t, to, "init", "--quiet", "--bare")
	target := openDir(t, to)
	if err := unpack(t, target, packOf(t, openDir(t, from), []string{third}, []string{second})); err != nil {
		t.Fatal(err)
	}
	if whole, err := target.IsConnected(t.Context(), []string{third}, nil); err != nil || whole {
		t.Errorf("a commit without its parents is whole: %v, %v", whole, err)
	}
	if whole, err := target.IsConnectedBesideRefs(t.Context(), []string{third}, nil); err != nil || whole {
		t.Errorf("a commit without its parents is whole: %v, %v", whole, err)
	}
	if whole, err := target.IsConnected(t.Context(), []string{third}, []string{second}); err != nil || whole {
		t.Errorf("what is not here is taken to be known: %v, %v", whole, err)
	}
	if err := unpack(t, target, packOf(t, openDir(t, from), []string{second}, nil)); err != nil {
		t.Fatal(err)
	}
	if whole, err := target.IsConnected(t.Context(), []string{third}, nil); err != nil || !whole {
		t.Errorf("with all parents: %v, %v", whole, err)
	}
}

func TestLargePacksAreKeptAsPacks(t *testing.T) {
	t.Parallel()
	from, first := newRepo(t, "--bare")
	last := chain(t, from, 60, first)
	to := t.TempDir()
	git(t, to, "init", "--quiet", "--bare")
	if err := unpack(t, openDir(t, to), packOf(t, openDir(t, from), []string{last}, nil)); err != nil {
		t.Fatal(err)
	}
	if out := git(t, to, "count-objects", "-v"); !strings.Contains(out, "packs: 1") || !strings.Contains(out, "count: 0\n") {
		t.Errorf("not one pack: %s", out)
	}
}

func TestWhatIsNoPackIsRefused(t *testing.T) {
	t.Parallel()
	from, first := newRepo(t, "--bare")
	repo := openDir(t, from)
	good := packOf(t, repo, []string{commitOn(t, from, "x", first)}, nil)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	for name, in := range map[string][]byte{
		"nothing": nil, "short": good[:8], "another format": append([]byte("PICK"), good[4:]...), "cut": good[:len(good)-5], "a flipped bit": flipped,
	} {
		if err := unpack(t, repo, in); err == nil {
			t.Errorf("%s: unpacked", name)
		}
	}
	broken := errors.New("the line is broken")
	if err := unpackFrom(t, repo, func() io.Reader { return io.MultiReader(bytes.NewReader(good[:20]), failing{broken}) }); err == nil {
		t.Error("a pack that could not be read to its end was unpacked")
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestTheBoundaryIsWhereHistoriesMeet(t *testing.T) {
	t.Parallel()
	dir, first := newRepo(t, "--bare")
	repo := openDir(t, dir)
	second := commitOn(t, dir, "second", first)
	left := commitOn(t, dir, "left", second)
	right := commitOn(t, dir, "right", second)
	merge := commitOn(t, dir, "merge", left, right)
	git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "tag", "-a", "-m", "t", "t", second)
	tag := git(t, dir, "rev-parse", "t")
	alone := commitOn(t, dir, "alone")
	for name, c := range map[string]struct{ tips, known, want []string }{
		"a child":                  {[]string{left}, []string{right}, []string{second}},
		"a merge":                  {[]string{merge}, []string{left}, []string{left, second}},
		"what is known":            {[]string{second}, []string{left}, []string{second}},
		"a tag of what is known":   {[]string{tag}, []string{left}, []string{second}},
		"another history":          {[]string{alone}, []string{left}, nil},
		"one of each":              {[]string{alone, second}, []string{left}, []string{second}},
		"nothing is known":         {[]string{left}, nil, nil},
		"known twice, and further": {[]string{merge}, []string{left, right, second}, []string{left, right}},
	} {
		got, err := repo.Boundary(t.Context(), c.tips, c.known)
		slices.Sort(got)
		slices.Sort(c.want)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
			continue
		}
		// What a pack leaves out by the boundary is what it leaves out by all that is known.
		whole, err := repo.IsConnected(t.Context(), c.tips, got)
		if err != nil || !whole {
			t.Errorf("%s: %v, %v", name, whole, err)
		}
		if a, b := objectsIn(t, packOf(t, repo, c.tips, got)), objectsIn(t, packOf(t, repo, c.tips, c.known)); a != b && name != "a merge" {
			t.Errorf("%s: %d objects instead of %d", name, a, b)
		}
	}
}

func objectsIn(tb testing.TB, pack []byte) int {
	n, err := gitrepo.PackObjects(pack)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// gitWith runs git with standard input.
func gitWith(tb testing.TB, dir, in string, args ...string) string {
	tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// What cuts a history off in one repository only, other repositories don't have.
func TestReplacementsAndGraftsAreSeenThrough(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(t *testing.T, dir, id string){
		"graft": func(t *testing.T, dir, id string) { write(t, id+"\n", dir, "info", "grafts") },
		"replacement": func(t *testing.T, dir, id string) {
			git(t, dir, "update-ref", "refs/replace/"+id, commitOn(t, dir, "instead"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, first := newRepo(t, "--bare")
			second := commitOn(t, from, "second", first)
			third := commitOn(t, from, "third", second)
			whole := packOf(t, openDir(t, from), []string{third}, nil)
			to := t.TempDir()
			git(t, to, "init", "--quiet", "--bare")
			target := openDir(t, to)
			if err := unpack(t, target, packOf(t, openDir(t, from), []string{third}, []string{first})); err != nil {
				t.Fatal(err)
			}
			cut(t, to, second)
			cut(t, from, second)
			if here, err := target.Connected(t.Context(), []string{third}); err != nil || here[third] {
				t.Errorf("a commit is connected though what it builds on is missing: %v, %v", here, err)
			}
			if ok, err := target.IsConnected(t.Context(), []string{third}, nil); err != nil || ok {
				t.Errorf("a commit is whole though what it builds on is missing: %v, %v", ok, err)
			}
			want, err := gitrepo.PackObjects(whole)
			got, err2 := gitrepo.PackObjects(packOf(t, openDir(t, from), []string{third}, nil))
			if got != want || errors.Join(err, err2) != nil {
				t.Errorf("the pack has %d objects, not %d: %v", got, want, errors.Join(err, err2))
			}
		})
	}
}

// Git leaves temporary files, of the size of the pack or of an object, where it fails to write them. A disk that is full would get fuller
// with every attempt.
func TestAPackThatFailsLeavesNoFiles(t *testing.T) {
	t.Parallel()
	for _, commits := range []int{2, 60} { // unpacked, and kept as a pack
		t.Run(fmt.Sprint(commits), func(t *testing.T) {
			t.Parallel()
			from, first := newRepo(t, "--bare")
			last := chain(t, from, commits, first)
			pack := packOf(t, openDir(t, from), []string{last}, nil)
			to := filepath.Join(t.TempDir(), `a "quoted": path`)
			git(t, "", "init", "--quiet", "--bare", to)
			objects := filepath.Join(to, "objects")
			broken := bytes.Clone(pack)
			broken[len(broken)-25] ^= 1
			for _, bad := range [][]byte{pack[:len(pack)-30], broken} {
				if err := unpack(t, openDir(t, to), bad); err == nil {
					t.Error("it was unpacked")
				}
				if left := filesIn(t, objects); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
			}
			if err := unpack(t, openDir(t, to), pack); err != nil {
				t.Fatal(err)
			}
			git(t, to, "fsck", "--strict", "--no-dangling")
			if whole, err := openDir(t, to).IsConnected(t.Context(), []string{last}, nil); err != nil || !whole {
				t.Errorf("it is whole: %v, %v", whole, err)
			}
			for _, file := range filesIn(t, objects) {
				if strings.Contains(file, "tmp_") {
					t.Errorf("left: %s", file)
				}
			}
		})
	}
}

func filesIn(tb testing.TB, dir string) (files []string) {
	tb.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return files
}
