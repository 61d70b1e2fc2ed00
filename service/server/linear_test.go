package server_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
	"github.com/globalrefdb/globalrefdb/test/linearizability"
)

// leaseTime is that of locks which do not become stale while a test runs.
const leaseTime = time.Hour

// A history has the calls of many clients, in the form of package linearizability.
type history struct {
	began time.Time

	mu  sync.Mutex
	ops []linearizability.Op
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) add(op linearizability.Op) {
	op.Return = h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	op.ID = len(h.ops)
	h.ops = append(h.ops, op)
}

// check reports whether there is an order of the calls in which each answer is right.
func (h *history) check(t *testing.T) {
	t.Helper()
	// Refusals name owners, of which each has acquired once, but no tokens.
	tokens := map[string]refdb.Token{}
	done := map[linearizability.Kind]int{}
	for _, op := range h.ops {
		if op.Output.Result == linearizability.Done {
			done[op.Input.Kind]++
			if op.Input.Kind == linearizability.Acquire {
				tokens[op.Owner] = op.Output.Token
			}
		}
	}
	for _, op := range h.ops {
		for i := range op.Output.Holders {
			op.Output.Holders[i].Token = tokens[op.Output.Holders[i].Owner]
		}
	}
	if err := linearizability.Check(h.ops, patience).Err(); err != nil {
		t.Error(err)
	}
	for _, kind := range []linearizability.Kind{linearizability.Get, linearizability.Update, linearizability.Acquire, linearizability.Release} {
		if done[kind] == 0 {
			t.Errorf("no %s succeeded: %v", kind, done)
		}
	}
}

func holdersOf(l *refdbv1.Locked) (all []linearizability.Holder) {
	for _, h := range l.Holders {
		all = append(all, linearizability.Holder{Ref: h.Ref, Owner: h.Owner, Age: h.Age.AsDuration(), StaleAfter: h.StaleAfter.AsDuration()})
	}
	return all
}

// A worker calls servers in turn.
type worker struct {
	*testing.T
	history *history
	project string
	refs    []string
	servers []refdbv1connect.RefdbServiceClient
	calls   int
}

// ended reports whether a call has failed, which none of them may.
func (w *worker) ended(what string, err error) bool {
	if err != nil {
		w.Errorf("%s: %v", what, err)
	}
	return err != nil
}

func (w *worker) next() refdbv1connect.RefdbServiceClient {
	w.calls++
	return w.servers[w.calls%len(w.servers)]
}

func (w *worker) get() map[string]string {
	op := linearizability.Op{Call: w.history.now(), Input: linearizability.Input{Kind: linearizability.Get, Project: w.project, Refs: w.refs}}
	r, err := w.next().Get(w.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: w.project, Refs: w.refs}))
	if w.ended("Get", err) {
		return nil
	}
	op.Output = linearizability.Output{Result: linearizability.Done, Values: map[string]refdb.Value{}}
	values := map[string]string{}
	for _, ref := range r.Msg.Refs {
		if values[ref.Name] = ref.Value; ref.Value != "" {
			op.Output.Values[ref.Name] = refdb.Value(ref.Value)
		}
	}
	w.history.add(op)
	return values
}

func (w *worker) acquire(refs []string, wait time.Duration) *refdbv1.Acquired {
	op := linearizability.Op{Call: w.history.now(), Input: linearizability.Input{Kind: linearizability.Acquire, Project: w.project, Refs: refs, StaleAfter: leaseTime}}
	r, err := w.next().Acquire(w.Context(), connect.NewRequest(&refdbv1.AcquireRequest{
		Project: w.project, Refs: refs, LeaseTime: durationpb.New(leaseTime), Wait: durationpb.New(wait),
	}))
	if w.ended("Acquire", err) {
		return nil
	}
	got := r.Msg.GetAcquired()
	switch locked := r.Msg.GetLocked(); {
	case got != nil:
		op.Owner = got.Lock.Owner
		op.Output = linearizability.Output{Result: linearizability.Done, Token: refdb.Token(got.Lock.Token), Values: map[string]refdb.Value{}}
		for _, ref := range got.Values {
			op.Output.Values[ref.Name] = refdb.Value(ref.Value)
		}
	case locked != nil && wait == 0:
		op.Output = linearizability.Output{Result: linearizability.Locked, Holders: holdersOf(locked)}
	case locked != nil:
		op.Output = linearizability.Output{Result: linearizability.Nothing} // it saw the holders some time before
	default:
		w.Errorf("Acquire: %v", r.Msg)
		return nil
	}
	w.history.add(op)
	return got
}

func (w *worker) extend(l *refdbv1.Lock) {
	op := linearizability.Op{Owner: l.Owner, Call: w.history.now(), Input: linearizability.Input{Kind: linearizability.Beat}}
	r, err := w.next().Extend(w.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: l}))
	if w.ended("Extend", err) {
		return
	}
	if r.Msg.GetExtended() == nil {
		w.Errorf("Extend: %v", r.Msg) // the lock has an hour
		return
	}
	op.Output.Result = linearizability.Done
	for _, ref := range l.Refs {
		op.Output.Beats = append(op.Output.Beats, linearizability.Row{Project: w.project, Ref: ref, Token: refdb.Token(l.Token), Result: driver.BeatRenewed})
	}
	w.history.add(op)
}

func (w *worker) update(u *refdbv1.UpdateRequest) {
	u.Project = w.project
	in := linearizability.Input{Kind: linearizability.Update, Project: w.project, Release: u.Release}
	for _, one := range u.Updates {
		in.Updates = append(in.Updates, refdb.Update{Ref: one.Ref, Old: refdb.Value(one.Old), New: refdb.Value(one.New)})
	}
	if l := u.Under; l != nil {
		in.Refs, in.Owner, in.Token = l.Refs, l.Owner, refdb.Token(l.Token)
	}
	op := linearizability.Op{Owner: in.Owner, Call: w.history.now(), Input: in}
	r, err := w.next().Update(w.Context(), connect.NewRequest(u))
	if w.ended("Update", err) {
		return
	}
	switch got := r.Msg.Result.(type) {
	case *refdbv1.UpdateResponse_Updated:
		op.Output.Result = linearizability.Done
	case *refdbv1.UpdateResponse_Lost:
		op.Output = linearizability.Output{Result: linearizability.Lost, Lost: got.Lost.Refs}
	case *refdbv1.UpdateResponse_Locked:
		op.Output = linearizability.Output{Result: linearizability.Locked, Holders: holdersOf(got.Locked)}
	case *refdbv1.UpdateResponse_Mismatched:
		op.Output.Result = linearizability.Mismatch
		for _, m := range got.Mismatched.Mismatches {
			op.Output.Mismatches = append(op.Output.Mismatches, refdb.Mismatch{Ref: m.Ref, Want: refdb.Value(m.Expected), Have: refdb.Value(m.Value)})
		}
	default:
		w.Errorf("Update: %v", r.Msg)
		return
	}
	w.history.add(op)
}

func (w *worker) release(l *refdbv1.Lock) {
	op := linearizability.Op{Owner: l.Owner, Call: w.history.now(),
		Input: linearizability.Input{Kind: linearizability.Release, Project: w.project, Refs: l.Refs, Token: refdb.Token(l.Token)}}
	r, err := w.next().Release(w.Context(), connect.NewRequest(&refdbv1.ReleaseRequest{Lock: l}))
	if w.ended("Release", err) {
		return
	}
	lost := map[string]bool{}
	switch got := r.Msg.Result.(type) {
	case *refdbv1.ReleaseResponse_Released:
		op.Output.Result = linearizability.Done
	case *refdbv1.ReleaseResponse_Lost:
		op.Output.Result = linearizability.Lost
		for _, ref := range got.Lost.Refs {
			lost[ref] = true
		}
	default:
		w.Errorf("Release: %v", r.Msg)
		return
	}
	for _, ref := range l.Refs {
		if !lost[ref] {
			op.Output.Deleted = append(op.Output.Deleted, ref)
		}
	}
	w.history.add(op)
}

// turn locks some refs, changes some under the lock and some without, and gives the lock up in one of
// several ways. No two updates write the same value.
func (w *worker) turn(name string, r *rand.Rand) {
	values := w.get()
	if values == nil {
		return
	}
	moved := func(ref, suffix string) []*refdbv1.RefUpdate {
		return []*refdbv1.RefUpdate{{Ref: ref, Old: values[ref], New: name + suffix}}
	}
	w.update(&refdbv1.UpdateRequest{Updates: moved(w.refs[r.IntN(len(w.refs))], "a")})
	first := r.IntN(len(w.refs))
	refs := w.refs[first : first+1+r.IntN(len(w.refs)-first)]
	got := w.acquire(refs, time.Duration(r.IntN(2))*10*time.Second)
	if got == nil {
		return
	}
	values = map[string]string{}
	for _, ref := range got.Values {
		values[ref.Name] = ref.Value
	}
	w.update(&refdbv1.UpdateRequest{Updates: moved(refs[0], "b"), Under: got.Lock})
	w.extend(got.Lock)
	switch last := refs[len(refs)-1]; r.IntN(3) {
	case 0:
		w.release(got.Lock)
	case 1:
		if last == refs[0] {
			values[last] = name + "b"
		}
		w.update(&refdbv1.UpdateRequest{Updates: moved(last, "c"), Under: got.Lock, Release: true})
		w.release(got.Lock) // it is lost
	default:
		w.release(got.Lock)
		w.update(&refdbv1.UpdateRequest{Updates: moved(last, "d"), Under: got.Lock}) // it changes nothing
	}
}

func TestCallsThroughTwoServersAreLinearizable(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		subjects := []string{"a", "b", "c", "d"}
		for _, subject := range subjects {
			r.allow(t, subject, access.Administer, access.All, access.All)
		}
		first, second := r.serve(t, server.DefaultLimits, nil), r.serve(t, server.DefaultLimits, nil)
		h := &history{began: time.Now()}
		var running sync.WaitGroup
		for i, subject := range subjects {
			w := &worker{T: t, history: h, project: "p", refs: []string{"refs/heads/a", "refs/heads/b", "refs/heads/c"},
				servers: []refdbv1connect.RefdbServiceClient{first.plain(subject), second.grpc(subject)}, calls: i}
			random := rand.New(rand.NewPCG(1, uint64(i)))
			running.Go(func() {
				for n := 0; n < 15 && !t.Failed(); n++ {
					w.turn(fmt.Sprintf("%s-%d-", subject, n), random)
				}
			})
		}
		running.Wait()
		h.check(t)
	})
}
