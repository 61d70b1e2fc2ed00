package engine

import (
	"errors"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// PackStoreOf returns an error that wraps errors.ErrUnsupported if d keeps no packs.
func PackStoreOf(d driver.Driver) (driver.PackStore, error) {
	if s, ok := driver.RoleOf[driver.PackStore](d); ok {
		return s, nil
	}
	return nil, fmt.Errorf("this database keeps no packs: %w", errors.ErrUnsupported)
}

// CheckPart returns an error wrapping ErrInvalid if p can't be stored.
func CheckPart(p driver.PackPart) error {
	switch {
	case p.Pack.ID == "" || len(p.Pack.ID) > 64:
		return fmt.Errorf("%w pack ID", driver.ErrInvalid)
	case len(p.Data) == 0 || len(p.Data) > driver.MaxPackPart:
		return fmt.Errorf("%w part of %d bytes", driver.ErrInvalid, len(p.Data))
	case p.Number < 0:
		return fmt.Errorf("%w part number %d", driver.ErrInvalid, p.Number)
	case len(p.Pack.Tips) == 0 && !p.Pack.Full:
		return fmt.Errorf("%w pack: it has no tips", driver.ErrInvalid)
	}
	return driver.CheckProject(p.Pack.Project)
}
