package refusal

import (
	"errors"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// heldLong is how long a ref may be held before a retry is not worth it. A move takes milliseconds, and a daemon that has been silent for
// this long counts as gone.
const heldLong = refdb.DefaultStaleAfter

// NotPrepared turns an error of the database into the refusal that a pusher of the site reads.
func NotPrepared(site string, err error) error {
	var why Lines
	cause := Locked
	var mismatch *refdb.MismatchError
	var conflict *refdb.LockedError
	switch {
	case errors.As(err, &conflict):
		for _, l := range conflict.Holders {
			if l.Stale() {
				continue
			}
			why = append(why, LockedBy(l, site))
			if l.HeldFor() > heldLong {
				cause = Held
			}
		}
	case errors.As(err, &mismatch):
		for _, m := range mismatch.Mismatches {
			why = append(why, Mismatch(m.Ref, m.Want, m.Have))
			cause = MismatchReason(m.Have)
		}
	}
	if len(why) == 0 {
		return DatabaseFailed(err)
	}
	return Because(cause, why.OrNil())
}

// below reports whether a ref is in a namespace, or in its way.
func below(prefix, ref string) bool {
	return ref+"/" == prefix || strings.HasPrefix(ref, prefix)
}

// NoPeers refuses pushes to the refs of peers, and to those of the daemon.
func NoPeers(body []byte) error {
	lines, err := wire.ParseLines(body)
	if err != nil {
		return err
	}
	var why Lines
	for _, l := range lines {
		switch {
		case below(config.PeerPrefix, l.Ref):
			why = append(why, wire.PeerRef(l.Ref, config.PeerPrefix))
		case below(config.OwnPrefix, l.Ref):
			why = append(why, wire.OwnRef(l.Ref, config.OwnPrefix))
		}
	}
	return Because(PeerRefs, why.OrNil())
}
