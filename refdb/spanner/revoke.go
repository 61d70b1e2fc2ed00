package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Revoke undoes what r did, and leaves a record that r reads before it does anything.
func (d *Driver) Revoke(ctx context.Context, r refdb.PrepareRequest) error {
	_, err := decide(ctx, d, request{tag: "refdb.revoke", what: "revoke intents"}, statesOf(stateStatement(r.Project), lockKeys(refsOf(r.Updates))),
		func(b *batch, states []state) error {
			for _, l := range survey(intentClaim(&r), states).ours {
				b.deleteLock(r.Project, l.Ref)
				b.deleteIntent(r.Project, l.Ref, l.Token)
			}
			b.insertRevocation(&r)
			return nil
		})
	return err
}

// unrevoked is stateStatement, but selects nothing if r was revoked.
func unrevoked(r *refdb.PrepareRequest) spanner.Statement {
	s := stateStatement(r.Project)
	s.SQL += "\nWHERE NOT EXISTS (SELECT 1 FROM intents WHERE project = @project AND ref = @first AND nonce = @nonce)"
	s.Params["first"], s.Params["nonce"] = r.Updates[0].Ref, r.Nonce
	return s
}
