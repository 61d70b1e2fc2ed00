package packs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// smallPacks is the total size, in bytes, up to which packs after a base need no new base.
	smallPacks = 16 << 20
	// maxPacks is the maximum number of packs after a base. A clone unpacks them one by one.
	maxPacks = 5000
)

// WhyCompact returns the reason for which the project needs a new base, or "" if it needs none. A
// new base pays if the packs after the latest base are larger than that base, if there are very
// many of them, or if a ref reaches objects that are in no pack. The repository must have unpacked
// all packs.
func (s Source) WhyCompact(ctx context.Context) (string, error) {
	// Refs are read before packs are listed, so that the list has the packs of these values.
	var values []string
	for ref, err := range s.DB.Refs(ctx, s.Project, "refs/") {
		if err != nil {
			return "", err
		}
		if ref.Value.IsObjectID() && !ref.Value.IsDeleted() {
			values = append(values, string(ref.Value))
		}
	}
	var base driver.Pack
	var known []string
	later, size := 0, int64(0)
	for p, err := range List(ctx, s.DB, s.Project) {
		switch {
		case err != nil:
			return "", err
		case p.Full:
			base, later, size = p, 0, 0
			continue
		}
		later++
		size += p.Size
		known = append(known, p.Tips...)
	}
	switch {
	case size > max(base.Size, smallPacks):
		return fmt.Sprintf("%d bytes were stored since the latest base, which has %d", size, base.Size), nil
	case later > maxPacks:
		return fmt.Sprintf("%d packs were stored since the latest base", later), nil
	case len(values) == 0:
		return "", nil
	}
	if base.ID != "" {
		held, err := s.valuesAt(ctx, base.Position)
		if errors.Is(err, refdb.ErrPruned) || errors.Is(err, driver.ErrUnrecorded) {
			return "", nil // earlier calls have compared refs with a base of this age
		}
		if err != nil {
			return "", err
		}
		known = append(known, held...)
	}
	values = sortedSet(values)
	if here, err := s.Repo.Present(ctx, values); err != nil || len(here) < len(values) {
		return "", err // a site that has the objects finds the reason
	}
	n, err := s.countObjects(ctx, values, sortedSet(known))
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("refs reach %d objects that are in no pack", n), nil
}

// countObjects returns the number of objects that tips reach and known does not. It ignores those
// of known that are not here.
func (s Source) countObjects(ctx context.Context, tips, known []string) (int, error) {
	here, err := s.Repo.Present(ctx, known)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from := s.packed(ctx, tips, here)
	defer from.Close()
	var header [gitrepo.PackHeader]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return 0, err
	}
	return gitrepo.PackObjects(header[:])
}
