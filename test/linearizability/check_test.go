package linearizability_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

// Long enough for any check here on a busy machine.
const patience = 5 * time.Minute

func TestAHistoryOfADatabaseThatKeepsItsPromisesIsLinearizable(t *testing.T) {
	t.Parallel()
	ops := record(t, newMemory("", true), 50)
	if err := linearizability.Check(ops, patience).Err(); err != nil {
		t.Error(err)
	}
	if err := linearizability.Check(record(t, newMemory("", false), 50), patience).Err(); err != nil {
		t.Error(err)
	}
	results := make(map[linearizability.Result]int)
	for _, op := range ops {
		results[op.Output.Result]++
	}
	for _, want := range []linearizability.Result{linearizability.Done, linearizability.Locked, linearizability.Mismatch, linearizability.Lost, linearizability.Unknown} {
		if results[want] == 0 {
			t.Errorf("nothing was %s: %v", want, results)
		}
	}
}

func TestEveryBrokenPromiseIsFound(t *testing.T) {
	t.Parallel()
	for _, bug := range []string{
		"a read is stale",
		"a read is torn",
		"an acknowledged update is lost",
		"an update is half done",
		"a refused update is visible",
		"an update that was carried out is unavailable",
		"an update is carried out again after a while",
		"an update passes a fresh lock",
		"an update does not release",
		"a mismatch names an old value",
		"a stale token passes the fence",
		"a fence of another owner passes",
		"a lock that stands is said to be lost",
		"two hold a lock",
		"a fresh lock is reclaimed",
		"a refusal keeps a holder to itself",
		"a refusal names an older token",
		"a token goes backwards",
		"an acquisition returns old values",
		"a release deletes nothing",
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			// By chance all that a bug did in a history may be what could have been, or has very many orders. Several
			// short histories are checked sooner than a long one.
			var r linearizability.Report
			limit := 2 * time.Second
			for tries := 0; tries < 10 && r.Verdict != linearizability.Illegal; tries++ {
				r = linearizability.Check(record(t, newMemory(bug, true), 20), limit)
				limit = min(2*limit, patience)
			}
			if r.Verdict != linearizability.Illegal {
				t.Fatalf("the history is %s", r.Verdict)
			}
			for _, p := range r.Projects {
				if p.Verdict != linearizability.Illegal {
					continue
				}
				if !strings.Contains(p.Fault, "none of these can have come next") {
					t.Errorf("the fault is told as %q", p.Fault)
				}
				var page bytes.Buffer
				if err := p.Visualize(&page); err != nil || !strings.Contains(page.String(), "<html") {
					t.Errorf("the picture: %v, %d bytes", err, page.Len())
				}
			}
		})
	}
}

// record is the history of several processes that contend on m, and each take turns, or more if m's bug needs more.
func record(t *testing.T, m *memory, turns int) []linearizability.Op {
	t.Helper()
	var files []io.Reader
	var all sync.WaitGroup
	for process := range 3 {
		var file bytes.Buffer
		files = append(files, &file)
		c, err := linearizability.Open(linearizability.NewRecorder(&file), m, refdb.Options{Site: fmt.Sprint("site-", process)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for worker := range 2 {
			w := linearizability.Workload{
				Client: c, Rand: rand.New(rand.NewPCG(uint64(process), uint64(worker))),
				Projects: []string{"one", "two"}, Refs: []string{"refs/heads/a", "refs/heads/b", "refs/heads/c"},
				// While a holder looks what became of a lost reply, one that heeds no locks may
				// overwrite what it looks for.
				Advisory: !m.losing,
			}
			all.Go(func() {
				for turn := 0; turn < turns || !m.often() && turn < 10*turns; turn++ {
					w.Turn(context.Background())
				}
			})
		}
	}
	all.Wait()
	ops, err := linearizability.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}
