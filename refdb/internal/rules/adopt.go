package rules

import (
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Claim identifies a request for locks, so that its locks can be recognized after a lost reply.
type Claim struct {
	Owner string
	Nonce string // "" matches no lock
	Kind  Kind
}

// AcquireClaim returns the claim of r.
func AcquireClaim(r driver.AcquireRequest) Claim { return Claim{r.Owner, r.Nonce, Lease} }

// PrepareClaim returns the claim of r.
func PrepareClaim(r driver.PrepareRequest) Claim { return Claim{r.Owner, r.Nonce, Intent} }

// abandonClaim returns the claim of the acquisition that r abandons.
func abandonClaim(r driver.AbandonRequest) Claim { return Claim{r.Owner, r.Nonce, Lease} }

// Took reports whether the lock in r was taken by an earlier request for c, and has not been taken
// over since. The nonce alone is not sufficient: Gerrit's plugin does not know the column, and
// leaves the nonce in the locks that it takes over.
func (c Claim) Took(r Row) bool {
	return r.Lock != nil && c.Nonce != "" && r.Nonce == c.Nonce && r.Lock.Owner == c.Owner && KindOf(*r.Lock) == c.Kind
}

// TookAny reports whether c took a lock in rows.
func (c Claim) TookAny(rows []Row) bool { return slices.ContainsFunc(rows, c.Took) }

// tookAll reports whether c took the locks on all rows, which then are the result of its request.
func (c Claim) tookAll(rows []Row) bool {
	return !slices.ContainsFunc(rows, func(r Row) bool { return !c.Took(r) })
}

// Updated reports whether the update with the given ID was carried out. A single row that carries
// the ID proves it: the other refs may have moved since.
func Updated(id string, rows []Row) bool {
	return id != "" && slices.ContainsFunc(rows, func(r Row) bool { return r.Ref != nil && r.Ref.Op == id })
}
