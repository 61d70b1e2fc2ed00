package packs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	listLimit   = 100     // packs in a request
	inlineLimit = 4 << 20 // bytes that come with the list
	maxPasses   = 3       // that may begin again at the mark
)

// A Receiver brings the packs of a project from the database into a repository.
type Receiver struct {
	DB      *refdb.DB
	Repo    *gitrepo.Repo
	Project string
	Mark    *Mark

	// Refs are those whose values the packs are likely to build on.
	Refs []string
	// Limits are those of git; the zero value stands for the default ones.
	Limits gitrepo.UnpackLimits
	// Each, unless nil, is called with each pack that was unpacked.
	Each func(driver.Pack)
	// Malformed, unless nil, is called with each pack in which git's fsck objects to the form of an object, and with its words. The pack is unpacked
	// all the same.
	Malformed func(p driver.Pack, objection string)
}

// A HeldError says that a pack can't be unpacked, and with it nothing that comes after it in its project.
type HeldError struct {
	Pack driver.Pack
	Err  error
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("pack %s of %s: %v", e.Pack.ID, e.Pack.Owner, e.Err)
}

func (e *HeldError) Unwrap() error { return e.Err }

// HeldBy returns the ID of the pack that err says can't be unpacked; "" if it is about none.
func HeldBy(err error) string {
	if held := (*HeldError)(nil); errors.As(err, &held) {
		return held.Pack.ID
	}
	return ""
}

// Receive unpacks, in their order, all used packs that are not here yet, and moves the mark on. After an error some
// are here, and the mark says which. An error that wraps [ErrIncomplete] or [ErrDamaged] names who stored the pack.
//
// A pack is unpacked only if all is here that it builds on, and counts only if it then brings all that its tips reach:
// git itself unpacks a pack without either. If something is missing, Receive begins again: first at the mark, since a pack may have
// been used while later pages were read; then at the latest base, once an hour at the same one, which heals a repository that lost objects.
func (r Receiver) Receive(ctx context.Context) error {
	for tries := 0; ; tries++ {
		paged, err := r.pass(ctx)
		switch {
		case !errors.Is(err, ErrIncomplete):
			return err
		case paged && tries < maxPasses:
			continue
		}
		if again, failed := r.StartOver(ctx); failed != nil || !again {
			return errors.Join(err, failed)
		}
	}
}

// StartOver puts the mark before all packs, because objects are missing, so that the latest base is unpacked. It reports false if that
// was done with this base within the last hour. A base that came since may have what is missing, and stand before the mark.
func (r Receiver) StartOver(ctx context.Context) (bool, error) {
	page, err := r.DB.Packs().Page(ctx, driver.PackQuery{Project: r.Project, Limit: 1}) // it begins with the latest base
	if err != nil {
		return false, err
	}
	base := ""
	if len(page.Packs) > 0 && page.Packs[0].Full {
		base = page.Packs[0].ID
	}
	return r.Mark.startOver(base), nil
}

// pass lists what comes after the mark, page by page. It reports whether it has read more than one.
func (r Receiver) pass(ctx context.Context) (paged bool, err error) {
	after := r.Mark.Key
	// What was complete when the pass began: a pack that is used while later pages are read may stand in an earlier one.
	var complete refdb.Position
	for first := true; ; first = false {
		page, err := r.DB.Packs().Page(ctx, driver.PackQuery{Project: r.Project, After: after, Limit: listLimit, Inline: inlineLimit})
		if err != nil {
			return !first, err
		}
		if first {
			complete = page.Upto
			if r.Mark.lower(complete) {
				return r.pass(ctx)
			}
		}
		for _, p := range page.Packs {
			if err := r.take(ctx, p); err != nil {
				return !first, err
			}
			after = p.Key()
		}
		if !page.More {
			// There is none up to the complete position that was not listed.
			if end := (driver.PackKey{Position: complete + 1}); end.Compare(after) > 0 {
				after = end
			}
		}
		if r.Mark.listed(after, complete) {
			if err := r.Mark.Write(r.Repo.Dir()); err != nil {
				return !first, fmt.Errorf("recording which packs are here: %w", err)
			}
		}
		if !page.More {
			return !first, nil
		}
	}
}

// take unpacks one pack unless it is here.
func (r Receiver) take(ctx context.Context, p driver.Pack) error {
	if r.Mark.has(p) {
		return nil
	}
	if p.Full && !r.Mark.baseNeeded {
		// A site that has followed has all that is in it.
		if whole, err := r.hasBase(ctx, p); err != nil || whole {
			if whole {
				r.Mark.add(p)
			}
			return err
		}
	}
	if err := r.bring(ctx, p); err != nil {
		// As at the site that stored it, all that it was made for may be here. Then this site can store a base in its place.
		here := false
		if len(p.Tips) > 0 && ctx.Err() == nil {
			here, _ = r.Repo.IsConnectedBesideRefs(ctx, p.Tips, nil)
		}
		if !here {
			return err
		}
	}
	r.Mark.add(p)
	r.Mark.baseNeeded = r.Mark.baseNeeded && !p.Full
	if r.Each != nil {
		r.Each(p)
	}
	return nil
}

// bring unpacks a pack, and looks whether all that its tips reach is here then.
func (r Receiver) bring(ctx context.Context, p driver.Pack) error {
	if err := r.basesWhole(ctx, p); err != nil {
		return err
	}
	if err := r.unpack(ctx, p); err != nil {
		return r.held(p, err)
	}
	if p.Full {
		return nil
	}
	whole, err := r.Repo.IsConnected(ctx, p.Tips, p.Prerequisites)
	if err == nil && !whole {
		err = r.held(p, fmt.Errorf("%w that its values need: neither this pack nor the objects that it builds on have them", ErrIncomplete))
	}
	return err
}

// held returns the error of a pack that can't be unpacked, which says what to do. What is the fault of the database, the disk or a signal holds up no pack.
func (r Receiver) held(p driver.Pack, err error) error {
	switch {
	case errors.Is(err, gitrepo.ErrUnpackLimit):
		err = fmt.Errorf("%w: if the project should have the value, fetch its objects from a site that has them: `refdbctl site sync %s --from URL`", err, r.Project)
	case errors.Is(err, ErrIncomplete), errors.Is(err, ErrDamaged), errors.Is(err, gitrepo.ErrPack), errors.Is(err, gitrepo.ErrUnpack):
		err = fmt.Errorf("%w: run `refdbctl site store compact %s` at a site that has the objects", err, r.Project)
	default:
		return fmt.Errorf("pack %s of %s: %w", p.ID, p.Owner, err)
	}
	return &HeldError{p, err}
}

// hasBase reports whether all is here that refs held at the position of a base. What else is in the base may be needed by packs that
// come later, or by pushes that were under way: if it then turns out to be missing, the base is unpacked ([Receiver.StartOver]).
func (r Receiver) hasBase(ctx context.Context, p driver.Pack) (bool, error) {
	var ids []string
	for ref, err := range r.DB.RefsAt(ctx, r.Project, "refs/", p.Position) {
		if errors.Is(err, refdb.ErrPruned) || errors.Is(err, driver.ErrUnrecorded) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if ref.Value.IsObjectID() && !ref.Value.IsDeleted() {
			ids = append(ids, string(ref.Value))
		}
	}
	if len(ids) == 0 {
		return false, nil
	}
	ids = sortedSet(ids)
	here, err := r.Repo.Present(ctx, ids)
	if err != nil || len(here) < len(ids) {
		return false, err
	}
	whole, err := r.Repo.Connected(ctx, ids)
	return len(whole) == len(ids), err
}

// basesWhole returns nil if all that the pack builds on is here: what refs point to, and what was found to be whole.
func (r Receiver) basesWhole(ctx context.Context, p driver.Pack) error {
	unsure := slices.DeleteFunc(slices.Clone(p.Prerequisites), func(id string) bool { return r.Mark.IsWhole(id) })
	if len(unsure) > 0 && len(r.Refs) > 0 {
		values, err := r.Repo.Values(ctx, r.Refs)
		if err != nil {
			return err
		}
		for _, value := range values {
			unsure = slices.DeleteFunc(unsure, func(id string) bool { return id == value })
		}
	}
	if len(unsure) == 0 {
		return nil
	}
	var known []string
	for id := range r.Mark.whole {
		if r.Mark.IsWhole(id) {
			known = append(known, id)
		}
	}
	whole, err := r.Repo.IsConnectedBesideRefs(ctx, unsure, known)
	if err != nil {
		return err
	}
	switch {
	case !whole && p.Full:
		return r.held(p, fmt.Errorf("%w that the database kept in transit and has dropped", ErrIncomplete))
	case !whole:
		return r.held(p, fmt.Errorf("%w that it builds on", ErrIncomplete))
	}
	r.Mark.know(unsure)
	return nil
}

// unpack stores the pack's objects in the repository, while it reads them from the database. One that was too much for git is tried again after an hour.
func (r Receiver) unpack(ctx context.Context, p driver.Pack) error {
	if err := r.Mark.exceeded(p.ID); err != nil {
		return err
	}
	in := gitrepo.Incoming{Size: p.Size, Open: func() io.Reader { return NewReader(ctx, r.DB, p) }}
	if p.Data != nil {
		sum := sha256.Sum256(p.Data)
		if hex.EncodeToString(sum[:]) != p.Sum {
			return fmt.Errorf("%w: its checksum differs", ErrDamaged)
		}
		in.Open = func() io.Reader { return bytes.NewReader(p.Data) }
	}
	objection, err := r.Repo.Unpack(ctx, in, cmp.Or(r.Limits, gitrepo.DefaultUnpackLimits()))
	if errors.Is(err, gitrepo.ErrUnpackLimit) {
		r.Mark.exceeds(p.ID, err)
	}
	if err == nil && objection != "" && r.Malformed != nil {
		r.Malformed(p, objection)
	}
	return err
}

// NewReader returns a reader of a pack's bytes. At the end it is an error that wraps [ErrDamaged] if they are not those that were stored.
func NewReader(ctx context.Context, db *refdb.DB, p driver.Pack) io.Reader {
	return &reader{ctx: ctx, db: db, pack: p}
}

type reader struct {
	ctx    context.Context
	db     *refdb.DB
	pack   driver.Pack
	number int
	left   []byte
	sum    hash.Hash
}

func (r *reader) Read(b []byte) (int, error) {
	if r.sum == nil {
		r.sum = sha256.New()
	}
	if len(r.left) == 0 {
		if r.number == r.pack.Parts {
			if hex.EncodeToString(r.sum.Sum(nil)) != r.pack.Sum {
				return 0, fmt.Errorf("%w: its checksum differs", ErrDamaged)
			}
			return 0, io.EOF
		}
		data, err := r.db.Packs().Part(r.ctx, r.pack.ID, r.number)
		if err != nil {
			return 0, err
		}
		r.sum.Write(data)
		r.number++
		r.left = data
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}
