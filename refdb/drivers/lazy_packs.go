package drivers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

var _ refdb.PackStore = (*lazy)(nil)

// packs returns the role of the open driver, or an error that wraps errors.ErrUnsupported if it keeps no packs.
func (l *lazy) packs() (refdb.PackStore, error) {
	d, err := l.get()
	if err != nil {
		return nil, err
	}
	if s, ok := refdb.RoleOf[refdb.PackStore](d); ok {
		return s, nil
	}
	return nil, fmt.Errorf("this database keeps no packs: %w", errors.ErrUnsupported)
}

func (l *lazy) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	if len(r.Packs) > 0 {
		if _, err := l.packs(); err != nil {
			return refdb.Prepared{}, err
		}
	}
	return ask(ctx, l, refdb.Driver.Prepare, r)
}

func (l *lazy) StorePart(ctx context.Context, p refdb.PackPart) error {
	s, err := l.packs()
	if err != nil {
		return err
	}
	return s.StorePart(ctx, p)
}

func (l *lazy) Packs(ctx context.Context, q refdb.PackQuery) (refdb.PackPage, error) {
	s, err := l.packs()
	if err != nil {
		return refdb.PackPage{}, err
	}
	return s.Packs(ctx, q)
}

func (l *lazy) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	s, err := l.packs()
	if err != nil {
		return nil, err
	}
	return s.PackPart(ctx, id, number)
}

func (l *lazy) DropPack(ctx context.Context, id string) error {
	s, err := l.packs()
	if err != nil {
		return err
	}
	return s.DropPack(ctx, id)
}

func (l *lazy) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	s, err := l.packs()
	if err != nil {
		return 0, err
	}
	return s.DropAbandonedPacks(ctx, olderThan, limit)
}

func (l *lazy) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	s, err := l.packs()
	if err != nil {
		return 0, err
	}
	return s.DropSupersededPacks(ctx, project, limit)
}

func (l *lazy) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	s, err := l.packs()
	if err != nil {
		return 0, err
	}
	return s.RemovePacks(ctx, project, limit)
}

func (l *lazy) PackUsage(ctx context.Context, project string) (refdb.PackUsage, error) {
	s, err := l.packs()
	if err != nil {
		return refdb.PackUsage{}, err
	}
	return s.PackUsage(ctx, project)
}
