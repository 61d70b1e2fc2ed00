package driver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// The names of these exclude each other.
const (
	refT    = "refs/heads/t"
	refTX   = "refs/heads/t/x"
	refTXYZ = "refs/heads/t/x/y/z"
	refTW   = "refs/heads/t/w"
)

// A creator is a kind of request that creates refs only if git can hold them. It returns once the
// refs hold their new values, or why it was refused.
type creator struct {
	name   string
	create func(e *env, updates ...driver.Update) error
}

func creators() []creator {
	return []creator{
		{"a preparation", func(e *env, updates ...driver.Update) error {
			slices.SortFunc(updates, func(a, b driver.Update) int { return strings.Compare(a.Ref, b.Ref) })
			l, err := e.TryPrepare(e.A, updates...)
			if err == nil {
				err = e.Finish(e.A, l)
			}
			return err
		}},
		{"an update that asks", func(e *env, updates ...driver.Update) error {
			return e.SendUpdate(e.A, driver.UpdateRequest{GitNames: true, Updates: updates})
		}},
	}
}

// excludedNameRows are about names of which git can't hold both: no ref is created beside another
// one.
func excludedNameRows() (rows []row) {
	for _, c := range creators() {
		rows = append(rows, createdBy(c)...)
	}
	return append(rows, []row{
		{"an update without GitNames creates any name", func(e *env) {
			const version, value = "refs/multi-site/version", "refs/multi-site/version/value"
			e.Must(e.Update(e.A, suite.Move(version, "", v1), suite.Move(value, "", v1)))
			e.Must(e.Update(e.A, suite.Move(refTX, "", v1)))
			e.Prepare(e.A, suite.Move(refTW, "", v1))
			e.Must(e.Update(e.A, suite.Move(refT, "", v2)))
			e.WantRefs(map[string]driver.Value{version: v1, value: v1, refTX: v1, refT: v2})
		}},
		{"P7 a repeated preparation is adopted, whatever has been created since", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refT, "", v1))
			e.Must(e.Update(e.B, suite.Move(refTX, "", v1)))
			again, err := e.SendPrepare(e.A, l.PrepareRequest)
			e.Must(err)
			if again.Token != l.Token {
				e.Errorf("got token %d, then %d", l.Token, again.Token)
			}
			e.Must(e.Finish(e.A, l))
			e.WantRefs(map[string]driver.Value{refT: v1, refTX: v1})
		}},
		{"a preparation replaces a ref that it deletes by an excluded one, and the deleted ref excludes others until the end", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refT, "", v1)))
			l := e.Prepare(e.A, suite.Move(refT, v1, driver.Deleted), suite.Move(refTX, "", v2))
			_, err := e.TryPrepare(e.B, suite.Move(refTW, "", v3))
			e.WantHolders(err, refT)
			e.Must(e.Finish(e.A, l))
			e.WantRefs(map[string]driver.Value{refT: driver.Deleted, refTX: v2})
			e.Must(e.Finish(e.B, e.Prepare(e.B, suite.Move(refTW, "", v3))))
		}},
	}...)
}

func createdBy(c creator) []row {
	return []row{
		{c.name + " creates no ref above or below one that holds a value, and leaves nothing", func(e *env) {
			for _, pair := range [][2]string{{refT, refTX}, {refTX, refT}, {refT, refTXYZ}, {refTXYZ, refT}, {"A", "A/x"}, {"A/x", "A"}} {
				there, created := pair[0], pair[1]
				e.Must(e.Update(e.A, suite.Move(there, "", v1)))
				e.WantConflicts(c.create(e, suite.Move("refs/heads/other", "", v2), suite.Move(created, "", v2)), driver.NameConflict{Ref: created, With: there})
				e.WantNone()
				e.WantFree("refs/heads/other", created)
				e.WantRefs(map[string]driver.Value{there: v1})
				e.Remove(driver.RemoveRequest{Limit: 10})
			}
		}},
		{c.name + " creates names that only look alike, also those of other projects", func(e *env) {
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + "/x", Updates: []driver.Update{suite.Move(refTX, "", v1)}}))
			var all []string
			for _, ref := range []string{refT, "refs/heads/t!x", "refs/heads/t-x/y", "refs/heads/t.x", "refs/heads/t0", "refs/heads/t1/x", "refs/heads/T/x", "refs/heads/tx/y",
				"refs/heads/_", "refs/heads/a/x", "refs/heads/%", "refs/heads/b/x", "refs/heads/\u00e9", "refs/heads/e/x", "refs/tags/t/x"} {
				e.Must(c.create(e, suite.Move(ref, "", v1)))
				all = append(all, ref)
			}
			if got := e.List(e.Project); len(got) != len(all) {
				e.Errorf("there are %d refs, want %d", len(got), len(all))
			}
		}},
		{c.name + " is not kept by refs that were deleted", func(e *env) {
			e.Must(e.Update(e.A, suite.Move("refs/heads", "", driver.Deleted256), suite.Move(refTXYZ, "", driver.Deleted), suite.Move(refTW, "", driver.Deleted)))
			e.Must(c.create(e, suite.Move(refT, "", v1)))
			e.Must(c.create(e, suite.Move(refT, v1, driver.Deleted)))
			e.Must(c.create(e, suite.Move(refTXYZ, "", v2)))
			e.WantRefs(map[string]driver.Value{"refs/heads": driver.Deleted256, refT: driver.Deleted, refTXYZ: v2, refTW: driver.Deleted})
		}},
		{c.name + " finds what stands behind refs that were deleted", func(e *env) {
			var deleted []driver.Update
			for n := range e.Scale(200) {
				deleted = append(deleted, suite.Move(fmt.Sprintf("%s/%03d", refT, n), "", driver.Deleted))
			}
			e.Must(e.Update(e.A, append(deleted, suite.Move(refT+"/last", "", v1))...))
			e.WantConflicts(c.create(e, suite.Move(refT, "", v2)), driver.NameConflict{Ref: refT, With: refT + "/last"})
		}},
		{c.name + " is refused while an intent is pending above or below, whatever that does and however old it is", func(e *env) {
			for _, pair := range [][2]string{{refT, refTXYZ}, {refTXYZ, refT}} {
				there, created := pair[0], pair[1]
				l := e.Prepare(e.B, suite.Move(there, "", v1))
				e.Age(l, 50*years)
				if h := e.WantHolders(c.create(e, suite.Move("refs/heads/other", "", v2), suite.Move(created, "", v2)), there); h[0].Token != l.Token || h[0].Owner != l.Owner || !h[0].Intended() {
					e.Errorf("the holders are %+v", h)
				}
				e.WantFree("refs/heads/other", created)
				e.WantIntended(l)
				e.Must(e.Finish(e.B, l))
				deletion := e.Prepare(e.B, suite.Move(there, v1, driver.Deleted))
				e.WantHolders(c.create(e, suite.Move(created, "", v2)), there)
				e.Drop(e.B, deletion)
				e.WantConflicts(c.create(e, suite.Move(created, "", v2)), driver.NameConflict{Ref: created, With: there})
				e.Must(e.Finish(e.B, e.Prepare(e.B, suite.Move(there, v1, driver.Deleted))))
				e.Must(c.create(e, suite.Move(created, "", v2)))
				e.Remove(driver.RemoveRequest{Limit: 10})
			}
		}},
		{c.name + " is not kept by intents that have ended, nor by locks that stand for none", func(e *env) {
			e.Drop(e.B, e.Prepare(e.B, suite.Move(refTX, "", v1)))
			e.Resolve(e.B, driver.KeepOld, e.Prepare(e.B, suite.Move(refTX, "", v1)).IDs()...)
			r := e.Prepare(e.B, suite.Move(refTX, "", v1)).PrepareRequest
			e.Revoke(e.B, r)
			e.Acquire(e.B, "refs/heads", refTX, refTXYZ)
			e.Must(c.create(e, suite.Move(refT, "", v1)))
		}},
		{c.name + " moves and deletes what is there, whatever else is", func(e *env) {
			e.Prepare(e.B, suite.Move(refTW, "", v1))
			e.Must(e.Update(e.A, suite.Move(refT, "", v1), suite.Move(refTX, "", v1), suite.Move(refTXYZ, "", v1)))
			e.Must(c.create(e, suite.Move(refTX, v1, v2)))
			e.Must(c.create(e, suite.Move(refT, v1, v2), suite.Move(refTXYZ, v1, v2)))
			e.Must(c.create(e, suite.Move(refTX, v2, driver.Deleted), suite.Move(refTXYZ, v2, v3)))
			e.WantConflicts(c.create(e, suite.Move(refTX, "", v1)), driver.NameConflict{Ref: refTX, With: refT})
			e.WantRefs(map[string]driver.Value{refT: v2, refTX: driver.Deleted, refTXYZ: v3})
		}},
		{c.name + " creates in the place of what it deletes, but not beside what is left", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refT, "", v1)))
			e.Must(c.create(e, suite.Move(refT, v1, driver.Deleted), suite.Move(refTW, "", v2), suite.Move(refTXYZ, "", v2)))
			e.WantConflicts(c.create(e, suite.Move(refT, "", v1), suite.Move(refTW, v2, driver.Deleted)), driver.NameConflict{Ref: refT, With: refTXYZ})
			e.Must(c.create(e, suite.Move(refT, "", v1), suite.Move(refTW, v2, driver.Deleted), suite.Move(refTXYZ, v2, driver.Deleted)))
			e.WantRefs(map[string]driver.Value{refT: v1, refTW: driver.Deleted, refTXYZ: driver.Deleted})
		}},
		{c.name + " names each ref that it can't create, with the first that excludes it", func(e *env) {
			e.Must(e.Update(e.A, suite.Move("refs/heads", "", v1), suite.Move(refTW, "", v1), suite.Move(refTXYZ, "", v1), suite.Move("refs/tags/u/y", "", v1), suite.Move("refs/tags/u/z", "", v1)))
			e.WantConflicts(c.create(e, suite.Move(refT, "", v2), suite.Move("refs/meta/a", "", v2), suite.Move("refs/tags/u", "", v2)),
				driver.NameConflict{Ref: refT, With: "refs/heads"}, driver.NameConflict{Ref: "refs/tags/u", With: "refs/tags/u/y"})
		}},
		{c.name + " is refused for locks first, then for values, then for names", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refT, "", v1)))
			l := e.Prepare(e.B, suite.Move("refs/tags/u", "", v1))
			updates := []driver.Update{suite.Move(refA, v2, v3), suite.Move(refTX, "", v3), suite.Move("refs/tags/u/x", "", v3)}
			e.WantHolders(c.create(e, updates...), "refs/tags/u")
			other := e.Acquire(e.B, refA)
			e.WantHolders(c.create(e, updates...), refA, "refs/tags/u")
			e.Release(e.B, other)
			e.Drop(e.B, l)
			e.WantMismatches(c.create(e, updates...), driver.Mismatch{Ref: refA, Want: v2})
			e.Must(e.Update(e.A, suite.Move(refA, "", v2)))
			e.WantConflicts(c.create(e, updates...), driver.NameConflict{Ref: refTX, With: refT})
		}},
		{c.name + " of many refs finds the one that is excluded, and creates them without it", suite.Long(func(e *env) {
			names := suite.ManyNames(e.Scale(1000))
			excluded := names[len(names)/2]
			e.Must(e.Update(e.A, suite.Move(names[0]+"/x", "", driver.Deleted), suite.Move(excluded+"/x", "", v1)))
			e.WantConflicts(c.create(e, suite.Creations(names)...), driver.NameConflict{Ref: excluded, With: excluded + "/x"})
			e.Must(c.create(e, suite.Creations(slices.DeleteFunc(names, func(ref string) bool { return ref == excluded }))...))
		})},
	}
}
