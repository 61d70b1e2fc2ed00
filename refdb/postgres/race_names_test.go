package postgres_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// The server ends one of two deadlocked transactions, unless lock_timeout expires first, which it
// does not here.
func TestCreatorsOfExcludedNamesNeverDeadlock(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	drivers := []driver.Driver{open(t, with(t, db.URL(), "lock_timeout", "5min")), open(t, with(t, db.URL(), "lock_timeout", "5min"))}
	names := []string{"refs/heads/t"}
	for _, a := range []string{"a", "b", "c"} {
		names = append(names, "refs/heads/t/"+a, "refs/heads/t/"+a+"/x", "refs/heads/t/"+a+"/y")
	}
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	var working sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		working.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for n := 0; n < rounds && errs[i] == nil; n++ {
				errs[i] = replaceNames(t, drivers[i%2], random, names)
			}
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	rows, err := drivers[0].Get(t.Context(), project, names)
	if err != nil {
		t.Fatal(err)
	}
	rows = slices.DeleteFunc(rows, func(r driver.Ref) bool { return r.Value.IsDeleted() })
	for _, a := range rows {
		for _, b := range rows {
			if driver.Excludes(a.Name, b.Name) {
				t.Errorf("%s and %s both exist", a.Name, b.Name)
			}
		}
	}
}

// replaceNames creates some of names, which don't exclude each other, and deletes all others that
// exist.
func replaceNames(t *testing.T, d driver.Driver, random *rand.Rand, names []string) error {
	rows, err := d.Get(t.Context(), project, names)
	if err != nil {
		return err
	}
	values := make(map[string]driver.Value)
	for _, r := range rows {
		values[r.Name] = r.Value
	}
	var created []string
	for _, n := range random.Perm(len(names))[:3] {
		if !slices.ContainsFunc(created, func(c string) bool { return driver.Excludes(c, names[n]) }) {
			created = append(created, names[n])
		}
	}
	r := driver.PrepareRequest{Project: project, Owner: owner, Nonce: fmt.Sprint(random.Uint64()), Agent: "boot:1:2"}
	for _, name := range names {
		if slices.Contains(created, name) {
			r.Updates = append(r.Updates, driver.Update{Ref: name, Old: values[name], New: driver.Value(r.Nonce)})
		} else if !values[name].IsAbsent() {
			r.Updates = append(r.Updates, driver.Update{Ref: name, Old: values[name], New: driver.Deleted})
		}
	}
	slices.SortFunc(r.Updates, func(a, b driver.Update) int { return strings.Compare(a.Ref, b.Ref) })
	p, err := d.Prepare(t.Context(), r)
	if errors.Is(err, driver.ErrLocked) || errors.Is(err, driver.ErrMismatch) || errors.Is(err, driver.ErrNameConflict) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.Finish(t.Context(), driver.FinishRequest{Project: project, Origin: driver.Origin{ID: r.Nonce, Owner: owner}, Token: p.Token, Done: r.Updates})
}
