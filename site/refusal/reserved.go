package refusal

import (
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Reserved refuses pushes to refs that are not the project's: those of peers and of the daemon, also names in their way, and
// those of work trees, unless they are deleted.
func Reserved(body []byte) error {
	lines, err := wire.ParseLines(body)
	if err != nil {
		return err
	}
	var peers, others Lines
	for _, l := range lines {
		n, ok := config.Reserved(l.Ref)
		if !ok {
			n, ok = config.Reserved(l.Ref + "/")
		}
		switch {
		case !ok:
		case n.Use == config.Peers:
			peers = append(peers, wire.PeerRef(l.Ref, n.Prefix))
		case n.Use == config.Daemons:
			peers = append(peers, wire.OwnRef(l.Ref, n.Prefix))
		case n.Use == config.WorkTrees && !l.NewZero():
			others = append(others, wire.WorkTreeRef(l.Ref, strings.TrimSuffix(n.Prefix, "/")))
		}
	}
	reason := PeerRefs
	if len(peers) == 0 {
		reason = ReservedName
	}
	return Because(reason, append(peers, others...).OrNil())
}

// Lookalikes refuses to create refs that a disk which ignores case would place in a namespace with a meaning. Refs that exist can be changed and
// deleted.
func Lookalikes(moves []refdb.Update) error {
	var why Lines
	for _, u := range moves {
		if !u.Old.IsAbsent() || u.New.IsAbsent() {
			continue
		}
		if n, ok := config.Resembles(u.Ref); ok {
			why = append(why, wire.Lookalike(u.Ref, n.Prefix))
		}
	}
	return Because(ReservedName, why.OrNil())
}

// InAllModes reports whether err refuses a push in mode log, too: because of a name, whatever the database holds, or because
// an operator has frozen the project.
func InAllModes(err error) bool {
	r := ReasonOf(err)
	return r == PeerRefs || r == ReservedName || r == Frozen
}
