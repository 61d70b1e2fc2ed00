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
	listLimit   = 100     // packs in a page
	inlineLimit = 4 << 20 // bytes of packs' data in a page
	maxPasses   = 3       // passes that may begin again at the mark
)

// A Receiver unpacks the packs of a project from the database into a repository.
type Receiver struct {
	DB      *refdb.DB
	Repo    *gitrepo.Repo
	Project string
	Mark    *Mark

	// Refs are refs of the repository whose values the packs are likely to build on.
	Refs []string
	// Limits bound git's use of resources; the zero value stands for the default limits.
	Limits gitrepo.UnpackLimits
	// Each, unless nil, is called with each pack that was unpacked.
	Each func(driver.Pack)
	// Malformed, unless nil, is called with each pack in which git's fsck objects to the format of
	// an object, and with fsck's message. The pack is unpacked nevertheless.
	Malformed func(p driver.Pack, objection string)
}

// A HeldError means that a pack can't be unpacked, which holds up all later packs of its project.
type HeldError struct {
	Pack driver.Pack
	Err  error
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("pack %s of %s: %v", e.Pack.ID, e.Pack.Owner, e.Err)
}

func (e *HeldError) Unwrap() error { return e.Err }

// HeldBy returns the ID of the pack of a [HeldError] that err wraps, or "" if there is none.
func HeldBy(err error) string {
	if held := (*HeldError)(nil); errors.As(err, &held) {
		return held.Pack.ID
	}
	return ""
}

// Receive unpacks all used packs that are not here yet, in their order, and advances the mark.
// After an error, some packs may be here, and the mark records which. An error that wraps
// [ErrIncomplete] or [ErrDamaged] names the process that stored the pack.
//
// A pack is unpacked only if everything that it builds on is here, and counts only if everything
// that its tips reach is here afterwards; git itself unpacks a pack without either. If objects are
// missing, Receive begins again: first at the mark, since a pack may have been used while later
// pages were read; then at the latest base, at most once an hour at the same base, which repairs a
// repository that lost objects.
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

// StartOver puts the mark before all packs because objects are missing, so that the latest base is
// unpacked. It returns false if it did so with the same base within the last hour. A base that was
// stored since may precede the mark and contain the missing objects.
func (r Receiver) StartOver(ctx context.Context) (bool, error) {
	// The page begins with the latest base.
	page, err := r.DB.Packs().Page(ctx, driver.PackQuery{Project: r.Project, Limit: 1})
	if err != nil {
		return false, err
	}
	base := ""
	if len(page.Packs) > 0 && page.Packs[0].Full {
		base = page.Packs[0].ID
	}
	return r.Mark.startOver(base), nil
}

// pass unpacks the packs after the mark, page by page. It reports whether it went beyond the first
// page.
func (r Receiver) pass(ctx context.Context) (paged bool, err error) {
	after := r.Mark.Key
	// complete is the complete position when the pass began: a pack that is used while later pages
	// are read may belong to an earlier page.
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
			if err := r.receivePack(ctx, p); err != nil {
				return !first, err
			}
			after = p.Key()
		}
		if !page.More {
			// All packs up to the complete position have been listed.
			if end := (driver.PackKey{Position: complete + 1}); end.Compare(after) > 0 {
				after = end
			}
		}
		if r.Mark.advance(after, complete) {
			if err := r.Mark.Write(r.Repo.Dir()); err != nil {
				return !first, fmt.Errorf("recording which packs are here: %w", err)
			}
		}
		if !page.More {
			return !first, nil
		}
	}
}

// receivePack unpacks one pack unless the repository has it.
func (r Receiver) receivePack(ctx context.Context, p driver.Pack) error {
	if r.Mark.has(p) {
		return nil
	}
	if p.Full && !r.Mark.baseNeeded {
		// A site that has followed all changes has the base's objects already.
		if whole, err := r.hasBase(ctx, p); err != nil || whole {
			if whole {
				r.Mark.add(p)
			}
			return err
		}
	}
	if err := r.unpackWhole(ctx, p); err != nil {
		// Everything that the tips reach may be here nevertheless, as at the site that stored the
		// pack. Such a site can then store a base that replaces the pack.
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

// unpackWhole unpacks a pack, and checks before that everything that it builds on is here, and
// afterwards that everything that its tips reach is here.
func (r Receiver) unpackWhole(ctx context.Context, p driver.Pack) error {
	if err := r.checkBases(ctx, p); err != nil {
		return err
	}
	if err := r.unpack(ctx, p); err != nil {
		return r.packError(p, err)
	}
	if p.Full {
		return nil
	}
	whole, err := r.Repo.IsConnected(ctx, p.Tips, p.Prerequisites)
	if err == nil && !whole {
		err = r.packError(p, fmt.Errorf("%w that its values need: neither this pack nor the objects that it builds on have them", ErrIncomplete))
	}
	return err
}

// packError returns the error of a pack that can't be unpacked. If the pack or missing objects are
// the cause, it is a [HeldError] that says what to do. A failure of the database or the disk, or a
// signal, holds up no pack.
func (r Receiver) packError(p driver.Pack, err error) error {
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

// hasBase reports whether everything is here that refs held at the position of a base. Later packs,
// or pushes that were in progress, may need other objects of the base. If they turn out to be
// missing, the base is unpacked: see [Receiver.StartOver].
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

// checkBases returns nil if everything that the pack builds on is here. It does not check bases
// that r.Refs hold or that were found whole before.
func (r Receiver) checkBases(ctx context.Context, p driver.Pack) error {
	unchecked := slices.DeleteFunc(slices.Clone(p.Prerequisites), func(id string) bool { return r.Mark.IsWhole(id) })
	if len(unchecked) > 0 && len(r.Refs) > 0 {
		values, err := r.Repo.Values(ctx, r.Refs)
		if err != nil {
			return err
		}
		for _, value := range values {
			unchecked = slices.DeleteFunc(unchecked, func(id string) bool { return id == value })
		}
	}
	if len(unchecked) == 0 {
		return nil
	}
	var known []string
	for id := range r.Mark.whole {
		if r.Mark.IsWhole(id) {
			known = append(known, id)
		}
	}
	whole, err := r.Repo.IsConnectedBesideRefs(ctx, unchecked, known)
	if err != nil {
		return err
	}
	switch {
	case !whole && p.Full:
		return r.packError(p, fmt.Errorf("%w that the database kept in transit and has dropped", ErrIncomplete))
	case !whole:
		return r.packError(p, fmt.Errorf("%w that it builds on", ErrIncomplete))
	}
	r.Mark.addWhole(unchecked)
	return nil
}

// unpack stores the pack's objects in the repository while it reads the pack from the database. A
// pack that exceeded a limit of git is tried again after retryExcess.
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
		r.Mark.recordExcess(p.ID, err)
	}
	if err == nil && objection != "" && r.Malformed != nil {
		r.Malformed(p, objection)
	}
	return err
}

// NewReader returns a reader of a pack's bytes. If these are not the bytes that were stored, the
// reader ends with an error that wraps [ErrDamaged] instead of io.EOF.
func NewReader(ctx context.Context, db *refdb.DB, p driver.Pack) io.Reader {
	return &reader{ctx: ctx, db: db, pack: p}
}

type reader struct {
	ctx    context.Context
	db     *refdb.DB
	pack   driver.Pack
	number int
	rest   []byte // unread bytes of the part that was read last
	sum    hash.Hash
}

func (r *reader) Read(b []byte) (int, error) {
	if r.sum == nil {
		r.sum = sha256.New()
	}
	if len(r.rest) == 0 {
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
		r.rest = data
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
