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
	// smallPacks are the bytes of packs that are never too many.
	smallPacks = 16 << 20
	// maxPacks is how many packs may come after a base: who clones unpacks one after the other.
	maxPacks = 5000
)

// WhyCompact says why a new base of the project pays; "" if it does not: after the latest base come more bytes than it has itself, or very
// many packs, or a ref holds what is in none of them. The repository has unpacked all packs.
func (s Source) WhyCompact(ctx context.Context) (string, error) {
	// Values are read first: what they need is in a pack that is listed then.
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
			return "", nil // a base that is as old has been looked at often
		}
		if err != nil {
			return "", err
		}
		known = append(known, held...)
	}
	values = sortedSet(values)
	if here, err := s.Repo.Present(ctx, values); err != nil || len(here) < len(values) {
		return "", err // another site can see to that
	}
	n, err := s.objectsBeside(ctx, values, sortedSet(known))
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("refs reach %d objects that are in no pack", n), nil
}

// objectsBeside returns how many objects tips reach that known, as far as they are here, don't.
func (s Source) objectsBeside(ctx context.Context, tips, known []string) (int, error) {
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
