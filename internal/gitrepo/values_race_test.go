package gitrepo_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A value must have been current at some time during the read, whatever git does
// to the files meanwhile.
func TestValuesDuringUpdatesAndPacking(t *testing.T) {
	t.Parallel()
	dir, commit := newRepo(t, "--bare")
	ids := commits(t, dir, 40)
	var filler strings.Builder
	filler.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range 300 {
		fmt.Fprintf(&filler, "%s refs/heads/f%04d\n", commit, i)
	}
	write(t, filler.String(), dir, "packed-refs")
	names := []string{"refs/heads/a", "refs/heads/d/b", "refs/heads/f0100x", "refs/tags/z"}

	type event struct {
		start, end time.Time
		value      string // empty: deleted
	}
	type reading struct {
		start, end time.Time
		values     map[string]string
	}
	began := time.Now()
	history := map[string][]event{}
	for _, name := range names {
		history[name] = []event{{began, began, ""}}
	}
	for _, timeout := range []string{"core.filesRefLockTimeout", "core.packedRefsTimeout"} {
		git(t, dir, "config", timeout, "300000")
	}
	enough := int64(400) // readings, and moves, to show anything
	if testing.Short() {
		enough = 100
	}
	var read atomic.Int64
	var over atomic.Bool
	var running sync.WaitGroup
	defer running.Wait()
	defer over.Store(true)
	running.Go(func() { // packs
		for !over.Load() {
			git(t, dir, "pack-refs", "--all")
			time.Sleep(3 * time.Millisecond) // leaves the lock to others
		}
	})
	readings := make([][]reading, 2)
	for i := range readings {
		running.Go(func() {
			repo := openDir(t, dir)
			for !over.Load() {
				start := time.Now()
				values, err := repo.Values(t.Context(), names)
				if err != nil {
					t.Error(err)
					return
				}
				readings[i] = append(readings[i], reading{start, time.Now(), values})
				read.Add(1)
			}
		})
	}
	updates := update(t, dir)
	random := rand.New(rand.NewPCG(5, 6))
	moves := int64(0)
	for i := 0; moves < enough || read.Load() < enough; i++ {
		if t.Failed() {
			return
		}
		name, value := names[random.IntN(len(names))], ids[i%len(ids)]
		last := history[name][len(history[name])-1].value
		command := "update " + name + " " + value
		if random.IntN(3) == 0 {
			command, value = "delete "+name, ""
		}
		if value == last {
			continue
		}
		e := event{start: time.Now(), value: value}
		updates(command)
		e.end = time.Now()
		history[name] = append(history[name], e)
		moves++
	}
	over.Store(true)
	running.Wait()

	for _, all := range readings {
		for _, r := range all {
			for _, name := range names {
				events := history[name]
				if !slices.ContainsFunc(indices(events), func(i int) bool {
					return events[i].value == r.values[name] && !events[i].start.After(r.end) && (i+1 == len(events) || !events[i+1].end.Before(r.start))
				}) {
					t.Errorf("%s was read as %q from %v to %v", name, r.values[name], r.start.Sub(began), r.end.Sub(began))
				}
			}
		}
	}
	t.Logf("%d readings of %d refs that moved %d times", read.Load(), len(names), moves)
}

// between is a context that lets a test act whenever a ref is about to be read.
type between struct {
	context.Context
	n   int
	act func(n int)
}

func (b *between) Err() error {
	b.act(b.n)
	b.n++
	return nil
}

func TestPackedRefsIsReplacedWhileItIsRead(t *testing.T) {
	t.Parallel()
	const ref, other = "refs/heads/x", "refs/heads/other"
	header := "# pack-refs with: peeled fully-peeled sorted \n"
	first, second := strings.Repeat("1", 40), strings.Repeat("2", 40)
	for _, c := range []struct {
		name, packed, loose string
		when                int // before this ref is read
		newPacked, newLoose string
		want                string
	}{
		{"an old value lay under the one that is packed", first, second, 0, second, "", second},
		{"there was none", "", second, 0, second, "", second},
		{"the ref is updated, and its deletion begins", first, "", 1, "", second, second},
		{"the ref is packed for the first time", "", "", 1, second, "", second},
		{"the ref is deleted", first, "", 1, "", "", ""},
		{"another one is packed", first, "", 1, first, "", first},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := newRepo(t, "--bare")
			set := func(packed, loose string) {
				os.Remove(filepath.Join(dir, ref))
				os.Remove(filepath.Join(dir, "packed-refs"))
				if packed != "" {
					write(t, header+packed+" "+ref+"\n", dir, "packed-refs.new")
					if err := os.Rename(filepath.Join(dir, "packed-refs.new"), filepath.Join(dir, "packed-refs")); err != nil {
						t.Fatal(err)
					}
				}
				if loose != "" {
					write(t, loose+"\n", dir, ref)
				}
			}
			set(c.packed, c.loose)
			ctx := &between{Context: t.Context(), act: func(n int) {
				if n == c.when {
					set(c.newPacked, c.newLoose)
				}
			}}
			values, err := openDir(t, dir).Values(ctx, []string{ref, other})
			if err != nil || values[ref] != c.want {
				t.Errorf("got %q, %v, want %q", values, err, c.want)
			}
		})
	}
}

func indices[T any](s []T) []int {
	all := make([]int, len(s))
	for i := range all {
		all[i] = i
	}
	return all
}

// update returns a function that carries out a command of git update-ref.
func update(t *testing.T, dir string) func(command string) {
	t.Helper()
	cmd := exec.Command("git", "update-ref", "--stdin")
	cmd.Dir = dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	answers := bufio.NewScanner(out)
	return func(command string) {
		t.Helper()
		fmt.Fprintf(in, "start\n%s\ncommit\n", command)
		for answers.Scan() {
			if answers.Text() == "commit: ok" {
				return
			}
		}
		t.Fatalf("git update-ref ended in %q", command)
	}
}

func BenchmarkValues(b *testing.B) {
	dir, commit := newRepo(b, "--bare")
	var packed strings.Builder
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	var names []string
	for i := range 1_000_000 {
		name := fmt.Sprintf("refs/heads/some/branch-%07d", i)
		fmt.Fprintf(&packed, "%s %s\n", commit, name)
		if i%1000 == 7 {
			names = append(names, name)
		}
	}
	write(b, packed.String(), dir, "packed-refs")
	for name, asked := range map[string][]string{"loose": {"refs/heads/main"}, "packed": names[500:501], "a thousand packed": names} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if got := valuesOf(b, openDir(b, dir), asked...); len(got) != len(asked) {
					b.Fatal(len(got))
				}
			}
		})
	}
}
