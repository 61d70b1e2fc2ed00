package gitrepo_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/testpack"
	"github.com/globalrefdb/globalrefdb/internal/testprogram"
)

// incoming is a pack that can be read several times.
func incoming(pack []byte) gitrepo.Incoming {
	return gitrepo.Incoming{Size: int64(len(pack)), Open: func() io.Reader { return bytes.NewReader(pack) }}
}

// unpack unpacks a pack that fsck has nothing against.
func unpack(tb testing.TB, repo *gitrepo.Repo, pack []byte) error {
	tb.Helper()
	return unpackFrom(tb, repo, incoming(pack).Open)
}

func unpackFrom(tb testing.TB, repo *gitrepo.Repo, open func() io.Reader) error {
	tb.Helper()
	objection, err := repo.Unpack(tb.Context(), gitrepo.Incoming{Open: open}, gitrepo.DefaultUnpackLimits())
	if objection != "" {
		tb.Errorf("fsck objects: %s", objection)
	}
	return err
}

// bareRepo makes a repository without objects.
func bareRepo(tb testing.TB) (dir string, repo *gitrepo.Repo) {
	tb.Helper()
	dir = tb.TempDir()
	git(tb, dir, "init", "--quiet", "--bare")
	return dir, openDir(tb, dir)
}

// onDisk returns the bytes of all files of a repository's objects.
func onDisk(tb testing.TB, dir string) (bytes int64) {
	tb.Helper()
	for _, file := range filesIn(tb, filepath.Join(dir, "objects")) {
		info, err := os.Stat(file)
		if err != nil {
			tb.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes
}

// counted puts a git in the PATH that counts how often it is run.
func counted(t *testing.T) (count func() int) {
	t.Helper()
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	runs := filepath.Join(bin, "runs")
	if err := testprogram.Write(filepath.Join(bin, "git"), []byte("#!/bin/sh\necho >>"+runs+"\nexec "+real+" \"$@\"\n")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return func() int {
		text, _ := os.ReadFile(runs)
		os.Remove(runs)
		return len(text)
	}
}

// Which objects a project takes is judged where a push enters. Another site stores whatever that accepted, and says what git has against it.
func TestObjectsThatFsckObjectsToAreStoredAndSaid(t *testing.T) {
	const author = "author n <e> 1 +0000\ncommitter n <e> 1 +0000\n"
	blob := []byte("hi")
	id := testpack.ID(testpack.Blob, int64(len(blob)), bytes.NewReader(blob))
	commit := func(header string) func(p *testpack.Pack) string {
		return func(p *testpack.Pack) string {
			p.Add(testpack.Tree, nil)
			return p.Add(testpack.Commit, []byte("tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"+header+"\nx\n"))
		}
	}
	tree := func(entry string) func(p *testpack.Pack) string {
		return func(p *testpack.Pack) string {
			p.Add(testpack.Blob, blob)
			var raw []byte
			fmt.Sscanf(id, "%x", &raw)
			return p.Add(testpack.Tree, append([]byte(entry+"\x00"), raw...))
		}
	}
	count := counted(t)
	for name, c := range map[string]struct {
		add  func(p *testpack.Pack) string
		says string // with %s for the object
		runs int    // of git
	}{
		"nothing to object to":        {commit(author), "", 1},
		"no address":                  {commit("author nobody 1 +0000\ncommitter nobody 1 +0000\n"), "object %s: missingEmail: ", 2},
		"a NUL, which no rule allows": {commit(author + "x\x00y\n"), "object %s: nulInHeader: ", 2},
		"an entry .":                  {tree("100644 ."), "object %s: hasDot: ", 2},
		"a mode with a zero before":   {tree("0100644 x"), "object %s: zeroPaddedFilemode: ", 2},
		"what it leads to is not there, which is for others to find": {func(p *testpack.Pack) string {
			return p.Add(testpack.Commit, []byte("tree "+strings.Repeat("1", 40)+"\n"+author+"\nx\n"))
		}, "", -1},
	} {
		for as, more := range map[string]int{"loose": 0, "a pack": 100} {
			t.Run(name+"/"+as, func(t *testing.T) {
				dir, repo := bareRepo(t)
				var p testpack.Pack
				want := c.add(&p)
				for i := range more {
					p.Add(testpack.Blob, fmt.Appendf(nil, "%d", i))
				}
				count()
				objection, err := repo.Unpack(t.Context(), incoming(p.Bytes()), gitrepo.DefaultUnpackLimits())
				if n := count(); n != c.runs && c.runs > 0 {
					t.Errorf("git was run %d times, want %d", n, c.runs)
				}
				if err != nil {
					t.Fatal(err)
				}
				if c.says == "" && objection != "" || c.says != "" && !strings.HasPrefix(objection, fmt.Sprintf(c.says, want)) {
					t.Errorf("it says %q", objection)
				}
				git(t, dir, "cat-file", "-e", want)
			})
		}
	}
}

// A pack of a few bytes may stand for any number of them.
func TestAPackThatUnfoldsToVeryMuchIsStoredWithinLimitsOrNot(t *testing.T) {
	t.Parallel()
	const MiB = 1 << 20
	noise := testpack.Noise(1, MiB)
	noiseID := testpack.ID(testpack.Blob, MiB, bytes.NewReader(noise))
	small := func(p *testpack.Pack) { // so many that they stay a pack
		for i := range 101 {
			p.Add(testpack.Blob, fmt.Appendf(nil, "%d", i))
		}
	}
	zeros := func(p *testpack.Pack) { p.AddZeros(64 * MiB) }
	for name, c := range map[string]struct {
		build  func(p *testpack.Pack)
		limit  func(l *gitrepo.UnpackLimits)
		here   []byte // a blob that the repository has
		set    string // one of git's settings
		says   string // "": it is stored
		onDisk int64
	}{
		"zeros":                         {build: zeros, onDisk: 2 * MiB},
		"so many that git streams them": {build: zeros, set: "core.bigFileThreshold=16m", onDisk: 2 * MiB},
		"deltas of which each doubles": {build: func(p *testpack.Pack) {
			at := p.Offset()
			p.AddZeros(MiB)
			p.Double(at, MiB, 10)
		}, limit: func(l *gitrepo.UnpackLimits) { l.Memory = 64 * MiB }, says: "64 MiB of memory"},
		"such deltas, in a large pack": {build: func(p *testpack.Pack) {
			small(p)
			at := p.Offset()
			p.AddZeros(MiB)
			p.Double(at, MiB, 10)
		}, limit: func(l *gitrepo.UnpackLimits) { l.Memory = 64 * MiB }, says: "64 MiB of memory"},
		"objects that are large as files": {build: func(p *testpack.Pack) {
			p.Add(testpack.Blob, noise)
			for i := range 10 {
				p.Repeat(noiseID, MiB, 4, fmt.Sprint(i))
			}
		}, limit: func(l *gitrepo.UnpackLimits) { l.Loose = 2 * MiB }, onDisk: 2 * MiB},
		"what it builds on would have to be stored once more": {here: noise, build: func(p *testpack.Pack) {
			small(p)
			p.Repeat(noiseID, MiB, 2, "")
		}, limit: func(l *gitrepo.UnpackLimits) { l.Added = MiB / 2 }, says: "MiB on the disk"},
		"it takes very long": {build: func(p *testpack.Pack) {
			p.Add(testpack.Blob, noise)
			for i := range 500 {
				p.Repeat(noiseID, MiB, 32, fmt.Sprint(i))
			}
		}, limit: func(l *gitrepo.UnpackLimits) { l.Seconds, l.SecondsPerMiB = 1, 0 }, says: "1 s of a processor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, repo := bareRepo(t)
			if key, value, ok := strings.Cut(c.set, "="); ok {
				git(t, dir, "config", key, value)
			}
			if c.here != nil {
				var p testpack.Pack
				p.Add(testpack.Blob, c.here)
				if err := unpack(t, repo, p.Bytes()); err != nil {
					t.Fatal(err)
				}
			}
			before := filesIn(t, filepath.Join(dir, "objects"))
			var p testpack.Pack
			c.build(&p)
			pack, l := p.Bytes(), gitrepo.DefaultUnpackLimits()
			if c.limit != nil {
				c.limit(&l)
			}
			_, err := repo.Unpack(t.Context(), incoming(pack), l)
			if c.says == "" {
				if n := onDisk(t, dir); err != nil || n > c.onDisk {
					t.Errorf("%v, and of a pack of %d bytes there are %d", err, len(pack), n)
				}
				return
			}
			if !errors.Is(err, gitrepo.ErrUnpackLimit) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, of a pack of %d bytes", err, len(pack))
			}
			if after := filesIn(t, filepath.Join(dir, "objects")); len(after) != len(before) {
				t.Errorf("it leaves %v", after)
			}
		})
	}
}

// On a disk that is nearly full a pack gets what it takes itself, so that small ones hold up nothing, and no more.
func TestOfTheLastRoomOnADiskAPackGetsItsOwnSize(t *testing.T) {
	t.Parallel()
	const MiB = 1 << 20
	_, repo := bareRepo(t)
	l := gitrepo.DefaultUnpackLimits()
	l.Free = math.MaxUint64
	noise := testpack.Noise(1, MiB)
	var p testpack.Pack
	p.Add(testpack.Blob, noise)
	if _, err := repo.Unpack(t.Context(), incoming(p.Bytes()), l); err != nil {
		t.Errorf("its own size: %v", err)
	}
	var small testpack.Pack
	for i := range 200 { // their index is larger than they are
		small.Add(testpack.Blob, fmt.Append(nil, i))
	}
	if _, err := repo.Unpack(t.Context(), incoming(small.Bytes()), l); err != nil {
		t.Errorf("small objects: %v", err)
	}
	var thin testpack.Pack
	for i := range 101 {
		thin.Add(testpack.Blob, fmt.Append(nil, "x", i))
	}
	thin.Repeat(testpack.ID(testpack.Blob, MiB, bytes.NewReader(noise)), MiB, 2, "")
	if _, err := repo.Unpack(t.Context(), incoming(thin.Bytes()), l); !errors.Is(err, gitrepo.ErrUnpackLimit) {
		t.Errorf("more than that: %v", err)
	}
	whole := incoming(small.Bytes())
	whole.Size = math.MaxInt64
	if _, err := repo.Unpack(t.Context(), whole, l); !errors.Is(err, gitrepo.ErrNoRoom) || !strings.Contains(err.Error(), "make room") {
		t.Errorf("more than there is: %v", err)
	}
}

func TestWhyAPackIsNotUnpackedIsTold(t *testing.T) {
	_, repo := bareRepo(t)
	var p testpack.Pack
	p.Add(testpack.Blob, []byte("x"))
	good := p.Bytes()
	broken := errors.New("the line is broken")
	crashing := t.TempDir() // for a git that does
	if err := testprogram.Write(filepath.Join(crashing, "git"), []byte("#!/bin/sh\nkill -SEGV $$\n")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		open func() io.Reader
		want error
		path string
	}{
		"git crashes":      {incoming(good).Open, gitrepo.ErrUnpack, crashing},
		"it is no pack":    {incoming([]byte("PICK" + string(good[4:]))).Open, gitrepo.ErrPack, ""},
		"it is cut":        {incoming(good[:len(good)-5]).Open, gitrepo.ErrUnpack, ""},
		"it can't be read": {func() io.Reader { return io.MultiReader(bytes.NewReader(good[:20]), failing{broken}) }, broken, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.path != "" {
				t.Setenv("PATH", c.path+":"+os.Getenv("PATH"))
			}
			_, err := repo.Unpack(t.Context(), gitrepo.Incoming{Open: c.open}, gitrepo.DefaultUnpackLimits())
			if !errors.Is(err, c.want) || c.want == broken && errors.Is(err, gitrepo.ErrUnpack) {
				t.Error(err)
			}
		})
	}
}
