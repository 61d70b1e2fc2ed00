package main

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestAnAddressWithFewConnectionsIsOtherwiseTheSame(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"postgres://me@db/x":  "postgres://me@db/x?" + fewConnections,
		"postgres://me@db/x?": "postgres://me@db/x?" + fewConnections,
		"postgresql://me@a:1,b:2/x?pool_max_conns=50&sslmode=prefer": "postgresql://me@a:1,b:2/x?sslmode=prefer&" + fewConnections,
		"postgres://me@db/x#y": "postgres://me@db/x#y",
		"sqlite:/a?b":          "sqlite:/a?b",
		"spanner://projects/p/instances/i/databases/d": "spanner://projects/p/instances/i/databases/d",
	} {
		if got := withFewConnections(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

func TestTheRulesHaveASmallPoolWhateverTheAddressSays(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: the pool of the rules on PostgreSQL; make test-all runs it")
	}
	a := &address{fallback: local.Postgres(t).URL() + "&pool_max_conns=20&pool_min_conns=5"}
	rules, err := a.openForRules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rules.Close()
	meter, ok := driver.RoleOf[driver.Meter](rules)
	if !ok {
		t.Fatal("the driver has no pools")
	}
	if most := meter.Stats().Pools[0]; most.Max != 2 {
		t.Errorf("%+v", most)
	}
}
