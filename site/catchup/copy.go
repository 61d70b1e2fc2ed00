package catchup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/mover"
)

// A Mover moves refs of one repository.
type Mover interface {
	// Claim keeps other processes from moving refs until release is called. Others are the refs that
	// Claim could not claim, each with the reason.
	Claim(ctx context.Context, refs []string) (release func(), others map[string]error, err error)
	// Move moves refs from exactly their present values. The error is a [*gitrepo.RefusedError] if
	// git refuses.
	Move(ctx context.Context, moves []gitrepo.Move) error
}

// alone moves refs of a repository that no daemon guards: there are no claims.
type alone struct {
	repo    *gitrepo.Repo
	mover   mover.Mover
	guarded func() bool
}

// errGuarded says that a daemon guards the repository now, and has to make its moves.
var errGuarded = errors.New("the repository was put under guard meanwhile")

func (a *alone) Claim(context.Context, []string) (func(), map[string]error, error) {
	if a.guarded() {
		return nil, nil, errGuarded
	}
	return func() {}, nil, nil
}

func (a *alone) Move(ctx context.Context, moves []gitrepo.Move) error {
	if a.guarded() {
		return errGuarded
	}
	return a.mover.Refs(ctx, a.repo, moves, Message, 0)
}

// Message is in the reflog of refs that were moved to the database's values.
const Message = "refdb: as in the global database"

// A Copy is a repository whose refs the site's daemon brings to the database's values. The repository
// must not be pruned meanwhile.
type Copy struct {
	Config  *config.Config // with the project's rules
	DB      *refdb.DB
	Repo    *gitrepo.Repo
	Project string
	Mover   Mover
	// Whole, unless nil, reports that everything that an object ID reaches is known to be here.
	Whole func(id string) bool
	// Each, unless nil, is called for every ref that differed.
	Each func(Synced)
	// Patient copies retry for some time while another process has git's lock file. Otherwise the
	// result is [Held].
	Patient bool
}

func (c Copy) syncer(from *source, o Options) *syncer {
	s := newSyncer(c.Config, c.DB, c.Repo, c.Project, from, o)
	s.mover, s.asks, s.whole = c.Mover, false, c.Whole
	if !c.Patient {
		s.patience = 0
	}
	return s
}

// All brings all guarded refs to the values that the database has, deletions included.
func (c Copy) All(ctx context.Context) (Report, error) {
	s := c.syncer(nil, Options{Each: c.Each})
	err := s.run(ctx)
	return s.report, err
}

// Refs is [Copy.All] for some refs.
func (c Copy) Refs(ctx context.Context, refs []string) error {
	return c.syncer(nil, Options{Each: c.Each}).some(ctx, refs)
}

// MendBroken gives refs that hold no value, as after a power cut, the value of the database, and
// reports whether there were any: no ref can be followed as long as one is
// broken.
func (c Copy) MendBroken(ctx context.Context) (mended bool, err error) {
	s := c.syncer(nil, Options{Each: func(o Synced) { mended = mended || o.Result == Created || o.Result == Updated }})
	broken, err := s.brokenRefs(ctx)
	if err != nil || len(broken) == 0 {
		return false, err
	}
	_, err = s.catchUp(ctx, broken)
	return mended, err
}

// The lines of a request for [Copy.Answer], and the first word of the lines of the answer.
const (
	askForce = "force"
	askPeer  = "peer " // from which all refs were fetched
	askRef   = "ref "
	isResult = "result "
)

// Answer is [Copy.Refs] for a [Sync] in another process, whose request is in body. It returns the
// lines of the answer, also beside an error.
func (c Copy) Answer(ctx context.Context, body []byte) (lines []string, err error) {
	var refs []string
	var from *source
	o := Options{Each: func(s Synced) {
		lines = append(lines, isResult+fmt.Sprintf("%s %q %q %q %q", s.Result, s.Local, s.Global, s.Ref, s.Detail))
	}}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSuffix(line, "\n")
		if peer, ok := strings.CutPrefix(line, askPeer); ok {
			from = &source{name: peer}
		} else if ref, ok := strings.CutPrefix(line, askRef); ok && c.Config.Guards(c.Project, ref) {
			refs = append(refs, ref)
		} else if line == askForce {
			o.Force = true
		}
	}
	c.Patient = true
	err = c.syncer(from, o).some(ctx, refs)
	return lines, err
}

// askDaemon asks the daemon to bring refs to the database's values. It returns the refs whose objects
// are missing.
func (s *syncer) askDaemon(ctx context.Context, refs []string) (missing []Synced, err error) {
	var body bytes.Buffer
	if s.Force {
		body.WriteString(askForce + "\n")
	}
	if s.peer != nil {
		body.WriteString(askPeer + s.peer.name + "\n")
	}
	for _, ref := range refs {
		body.WriteString(askRef + ref + "\n")
	}
	answer, err := client.CatchUp(ctx, s.Socket, s.repo.Dir(), body.Bytes())
	if err != nil {
		return nil, err
	}
	for _, line := range answer.Lines {
		text, ok := strings.CutPrefix(line, isResult)
		if !ok {
			err = errors.Join(err, errors.New(line))
			continue
		}
		var o Synced
		if _, err := fmt.Sscanf(text, "%s %q %q %q %q", &o.Result, &o.Local, &o.Global, &o.Ref, &o.Detail); err != nil {
			return missing, fmt.Errorf("the site daemon answers %q: %w", line, err)
		}
		if o.Result == Missing {
			missing = append(missing, o)
		} else {
			s.tell(o)
		}
	}
	if err == nil && !answer.OK {
		err = errors.New("the site daemon refuses, without a reason")
	}
	return missing, err
}
