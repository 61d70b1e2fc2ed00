package spanner_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestTheDiagnosisReportsWhetherWritesAreAllowed(t *testing.T) {
	t.Parallel()
	for i, table := range []string{"refs", "locks", "intents", "history", ""} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			db, w := dbtest.Spanner(t), &wire{}
			d := openWire(t, db, w)
			db.InsertRef(t, "p", branch, v1)
			db.InsertLock(t, driver.LockInfo{Project: "p", Ref: branch, Owner: "o"})
			w.take() // drops the RPCs of Open
			executed := 0
			w.set(func(w *wire) {
				w.around = func(name string, send func() error) error {
					if name == "ExecuteSql" {
						if executed++; executed > i {
							return status.Error(codes.PermissionDenied, "no")
						}
					}
					return send()
				}
			})
			found, err := d.Diagnose(t.Context())
			must(t, err)
			looked := false
			for _, f := range found {
				if f.Name != "privileges" {
					continue
				}
				looked = true
				if f.OK != (table == "") || !f.OK && (!strings.Contains(f.Detail, table) || !strings.Contains(f.Detail, "roles/spanner.databaseUser")) {
					t.Errorf("%+v", f)
				}
			}
			if !looked {
				t.Errorf("nothing about privileges in %+v", found)
			}
			for _, call := range w.take() {
				if call == "Commit" {
					t.Error("something was committed")
				}
			}
			if _, ok := db.RowLock(t, "p", branch); !ok {
				t.Error("the lock was deleted")
			}
		})
	}
}
