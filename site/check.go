package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Codes of findings. They don't change: monitoring may rely on them.
const (
	DaemonDown        = "daemon-down"         // the daemon does not answer, or says that something is wrong
	RepositoryBroken  = "repository"          // it can't be read
	RepositoryUnknown = "repository-unknown"  // the daemon does not serve it
	HookMissing       = "hook-missing"        // pushes are not guarded, or slow
	HookForeign       = "hook-foreign"        // another program is in its place
	HookNotExecutable = "hook-not-executable" // git ignores it
	HookOutdated      = "hook-outdated"       // it is of another version
	HooksPath         = "hooks-path"          // git looks for hooks elsewhere
	SocketLink        = "socket"              // the hook does not find the daemon
	Setting           = "setting"             // one of git's is not as needed
	Symref            = "symref"              // a guarded ref is a symbolic one
	RefBroken         = "ref-broken"          // git, or the database, can't take it for a ref
	LocalUnknown      = "local-unknown"       // here, and not in the database
	LocalDiffers      = "local-differs"       // here is another value than in the database
	GlobalMissingHere = "global-missing-here" // in the database, and not here
	IntentPending     = "intent-pending"      // a push that was announced and neither done nor dropped
	IntentDecided     = "intent-decided"      // an operator's decision that this site has not heeded
	LeftoverLock      = "leftover-lock"       // a lock file of a git that is gone
	ForeignOwner      = "foreign-owner"       // files of another user than the repository's
	PeerRef           = "peer-ref"            // in the way of the refs of a peer
)

// intentPatience is how long a push may take before its intent is a finding,
// and how long an operator's decision may wait for the daemon's next round.
const intentPatience = 30 * time.Second

// A Finding is something that an operator should know of.
type Finding struct {
	Project string // "" for the site as a whole
	Code    string
	Subject string // the ref, file or setting that it is about
	Detail  string // what was found, and what to do
	Mended  bool
}

// CheckOptions say how a site is looked at.
type CheckOptions struct {
	// Hook is the path of the hook's program, which the installed ones should
	// equal; "" if that isn't known.
	Hook string
	// Repair mends what is safe: hooks, settings, the link to the socket,
	// leftover lock files. It moves no ref.
	Repair bool
}

// Check looks for whatever keeps the repositories from being guarded, or
// differs from the database, and calls found for it. Without db it looks at
// the repositories alone. Refs that move while it looks are no finding. An
// error says that it could not look, not that something is wrong.
func Check(ctx context.Context, c *Config, db *refdb.DB, repositories []Repository, o CheckOptions, found func(Finding)) error {
	var program []byte
	if o.Hook != "" {
		var err error
		if program, err = readHook(o.Hook); err != nil {
			return err
		}
	}
	if detail := daemonFault(ctx, c.Socket); detail != "" {
		found(Finding{Code: DaemonDown, Subject: c.Socket, Detail: detail})
	}
	for _, r := range repositories {
		k := &check{Config: c, CheckOptions: o, Repository: r, db: db, program: program, found: found}
		if err := k.run(ctx); err != nil {
			return fmt.Errorf("checking %s: %w", r.Project, err)
		}
	}
	return nil
}

func daemonFault(ctx context.Context, socket string) string {
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	status, err := Query(ctx, socket)
	switch {
	case err != nil:
		return err.Error() + ": pushes are refused until it does; start it: systemctl start refdb-site"
	case !status.Presence:
		return "it does not hold its site's name, and refuses pushes: " + status.PresenceError
	case !status.Database:
		return "it does not reach the database, and refuses pushes: " + status.DatabaseError
	}
	return ""
}

// check looks at one repository.
type check struct {
	*Config
	CheckOptions
	Repository
	db      *refdb.DB
	repo    *gitrepo.Repo
	program []byte
	found   func(Finding)
}

func (k *check) run(ctx context.Context) error {
	var err error
	if k.repo, err = gitrepo.Open(ctx, k.Path); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		k.find(RepositoryBroken, k.Path, err.Error(), nil)
		return nil
	}
	k.hooks(ctx)
	k.link()
	k.known(ctx)
	if err := k.settings(ctx); err != nil {
		return err
	}
	if err := k.peers(ctx); err != nil {
		return err
	}
	if err := k.owners(); err != nil {
		return err
	}
	if err := k.leftovers(ctx); err != nil {
		return err
	}
	if k.db == nil {
		return nil
	}
	if err := k.refs(ctx); err != nil {
		return err
	}
	return k.intents(ctx)
}

// find tells of something. mend, unless nil, is what puts it right, and says how.
func (k *check) find(code, subject, detail string, mend func() (string, error)) {
	f := Finding{Project: k.Project, Code: code, Subject: subject, Detail: detail}
	if k.Repair && mend != nil {
		did, err := mend()
		if err != nil {
			f.Detail += "; could not be mended: " + err.Error()
		} else {
			f.Detail, f.Mended = did, true
		}
	}
	k.found(f)
}

func (k *check) hooks(ctx context.Context) {
	h, err := hooksOf(ctx, k.Config, k.repo, k.program)
	if err != nil {
		k.find(HooksPath, h.dir, err.Error(), nil)
		return
	}
	for _, name := range hookNames {
		if code, detail := h.look(name); code != "" {
			k.find(code, filepath.Join(h.dir, name), detail, func() (string, error) { return h.install(name) })
		}
	}
}

func (k *check) link() {
	path := socketLink(k.repo)
	if target, err := os.Readlink(path); err != nil || target != k.Socket {
		detail := fmt.Sprintf("it should be a symbolic link to %s", k.Socket)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			detail = "it is missing: " + detail
		case err == nil:
			detail = fmt.Sprintf("it leads to %s: %s", target, detail)
		}
		k.find(SocketLink, path, detail, func() (string, error) { return linkSocket(k.repo, k.Socket) })
	}
}

// known asks the daemon whether it serves this repository.
func (k *check) known(ctx context.Context) {
	if refusal, err := refusalOf(ctx, k.Socket, k.repo.Dir()); err == nil && refusal != "" {
		k.find(RepositoryUnknown, k.Path, "the daemon refuses pushes to it: "+refusal+": if the configuration says otherwise, let the daemon reload it", nil)
	}
}

func (k *check) settings(ctx context.Context) error {
	config := gitConfig{k.repo}
	for _, s := range settings {
		value, ok, err := config.get(ctx, s.key)
		if err != nil {
			return err
		}
		if ok && s.holds(value) {
			continue
		}
		detail := fmt.Sprintf("it is not set, and should be %s: %s", s.value, s.why)
		if ok {
			detail = fmt.Sprintf("it is %q, and should be %s: %s", value, s.value, s.why)
		}
		k.find(Setting, s.key, detail, func() (string, error) { return config.apply(ctx, s) })
	}
	return nil
}

func (k *check) intents(ctx context.Context) error {
	for i, err := range k.db.Intents(ctx, refdb.IntentFilter{Project: k.Project}) {
		if err != nil {
			return err
		}
		if i.Age > intentPatience {
			k.find(IntentPending, i.Ref, fmt.Sprintf("%s has announced %s → %s %s ago: its daemon ends it; if the site is gone: refdbctl locks resolve",
				i.Owner, short(i.Old), short(i.New), i.Age.Round(time.Second)), nil)
		}
	}
	for i, err := range k.db.Intents(ctx, refdb.IntentFilter{Project: k.Project, Owner: k.Site, Decided: true}) {
		if err != nil {
			return err
		}
		if i.Decision != refdb.Revoked && i.Age > intentPatience {
			k.find(IntentDecided, i.Ref, fmt.Sprintf("%s decided %s (%s): this site has not taken the value yet; its daemon does, or: refdbctl site repair",
				i.DecidedBy, i.Decision, i.Reason), nil)
		}
	}
	return nil
}

// Presence returns the lock that the daemon of a site holds while it runs, or
// nil if none does. A daemon that was killed leaves it behind for a while.
func Presence(ctx context.Context, db *refdb.DB, site string) (*refdb.LockInfo, error) {
	ref := presencePrefix + site
	if refdb.CheckRef(ref) != nil {
		return nil, nil
	}
	for l, err := range db.Locks(ctx, refdb.LockFilter{Project: presenceProject, Ref: ref}) {
		if err != nil || l.Stale() {
			return nil, err
		}
		return &l, nil
	}
	return nil, nil
}
