package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

var _ driver.PackStore = (*pair)(nil)

// The methods of a pair's drivers, if they keep packs.
func (p *pair) packs() (driver.PackStore, error) {
	if s, ok := p.next().(driver.PackStore); ok {
		return s, nil
	}
	return nil, fmt.Errorf("the drivers of a pair keep no packs: %w", errors.ErrUnsupported)
}

func (p *pair) StorePart(ctx context.Context, part driver.PackPart) error {
	s, err := p.packs()
	if err != nil {
		return err
	}
	return s.StorePart(ctx, part)
}

func (p *pair) Packs(ctx context.Context, q driver.PackQuery) (driver.PackPage, error) {
	s, err := p.packs()
	if err != nil {
		return driver.PackPage{}, err
	}
	return s.Packs(ctx, q)
}

func (p *pair) PackPart(ctx context.Context, id string, number int) ([]byte, error) {
	s, err := p.packs()
	if err != nil {
		return nil, err
	}
	return s.PackPart(ctx, id, number)
}

func (p *pair) DropPack(ctx context.Context, id string) error {
	s, err := p.packs()
	if err != nil {
		return err
	}
	return s.DropPack(ctx, id)
}

func (p *pair) DropAbandonedPacks(ctx context.Context, olderThan time.Duration, limit int) (int, error) {
	s, err := p.packs()
	if err != nil {
		return 0, err
	}
	return s.DropAbandonedPacks(ctx, olderThan, limit)
}

func (p *pair) DropSupersededPacks(ctx context.Context, project string, limit int) (int, error) {
	s, err := p.packs()
	if err != nil {
		return 0, err
	}
	return s.DropSupersededPacks(ctx, project, limit)
}

func (p *pair) RemovePacks(ctx context.Context, project string, limit int) (int, error) {
	s, err := p.packs()
	if err != nil {
		return 0, err
	}
	return s.RemovePacks(ctx, project, limit)
}

func (p *pair) PackUsage(ctx context.Context, project string) (driver.PackUsage, error) {
	s, err := p.packs()
	if err != nil {
		return driver.PackUsage{}, err
	}
	return s.PackUsage(ctx, project)
}
